"""Functions that read the values of arrays, such as sizes of image grids, while the rest of a model is traced."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_UNREADABLE = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
               jax.errors.TracerIntegerConversionError, jax.errors.NonConcreteBooleanIndexError)  # fmt: skip


class TracedValueError(TypeError):
    """An array was traced whose values decide shapes."""


def host_values(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function that reads values of arguments; what follows from concrete arrays is computed at once.

    Inside a traced call such arguments have to be arrays that the traced function closes over. Another value of them
    makes another program. Raises TracedValueError where one that is read is traced.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                with jax.ensure_compile_time_eval():
                    args, kwargs = jax.tree.map(_on_device, (args, kwargs), is_leaf=_is_opaque)
                    return function(*args, **kwargs)
            except (*_UNREADABLE, TracedValueError) as error:  # an outer function knows them by the caller's names
                given = dict(zip(parameters, args, strict=False)) | kwargs
                traced = [name for name in names if _is_traced(given.get(name))]
                if not traced:
                    raise
                raise TracedValueError(
                    f"{function.__qualname__}: the values of {', '.join(traced)} decide shapes, but are traced; pass "
                    "them as arrays that the jitted function closes over (`host_arguments` of the model's class lists "
                    "such arguments): jax.jit(lambda pixels: model(pixels, grid)), not jax.jit(model)(pixels, grid)"
                ) from error

        return run

    return mark


def _is_opaque(value: Any) -> bool:
    """Whether a value is none of the containers in which arguments of a call come."""
    return not isinstance(value, tuple | list | dict)


def _on_device(value: Any) -> Any:
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


def _is_traced(value: Any) -> bool:
    leaves = jax.tree.leaves(value, is_leaf=_is_opaque)
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
