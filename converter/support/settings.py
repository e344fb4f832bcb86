"""Settings of the configuration that hold for a whole call of a model, whatever its modules are."""

import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import Any

import jax

# How grouped products over experts are computed; read by `moe.group_by_expert`.
experts_backend: contextvars.ContextVar[str] = contextvars.ContextVar("experts_backend", default="auto")


def run_config(model: Any) -> Any:
    """What a model runs by: its `run_config` where the source has a `config` of its own, else its `config`."""
    return vars(model).get("run_config", getattr(model, "config", None))


def at_config_settings(method: Callable[..., Any]) -> Callable[..., Any]:
    """Run a model's method with its configuration's `matmul_precision` for products and `experts` for experts.

    A precision of "default" leaves JAX's own setting alone.
    """

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = run_config(self)
        precision = getattr(config, "matmul_precision", "default")
        token = experts_backend.set(getattr(config, "experts", "auto"))
        try:
            with contextlib.nullcontext() if precision == "default" else jax.default_matmul_precision(precision):
                return method(self, *args, **kwargs)
        finally:
            experts_backend.reset(token)

    return run
