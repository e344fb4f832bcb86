"""What the scenarios share: the target, its models by dtype, seeded inputs, and one recorded call."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from maxcode.evaluator.oracle import derive
from maxcode.evaluator.oracle.build import build_inputs, build_model, call
from maxcode.evaluator.oracle.discrete import Discrete
from maxcode.evaluator.oracle.inputs import cast, make_inputs
from maxcode.evaluator.oracle.lift import DTYPES
from maxcode.evaluator.oracle.target import Target, load_target

LARGE = 20_000_000  # parameters


class NotApplicableError(Exception):
    """A scenario that this model cannot have; the message is the reason that the verdict shows."""


class Session:
    """Models are built once per dtype and kept; scenarios that change a model ask for a `fresh` one."""

    def __init__(
        self, target: str | Path | Target, source: Path | None, *, seeds: int = 4, length: int = 600, tokens: int = 24
    ) -> None:
        self.target, self.source = load_target(target), source
        self.seeds, self.length, self.tokens = seeds, length, tokens
        self._models: dict[str, nn.Module] = {}

    def model(self, dtype: str) -> nn.Module:
        if dtype not in self._models:
            self._models[dtype] = build_model(self.target, dtype, self.source)
        return self._models[dtype]

    def fresh(self, dtype: str) -> nn.Module:
        """A model of its own, for a scenario that trains it."""
        return (
            copy.deepcopy(self.model(dtype)) if dtype in self._models else build_model(self.target, dtype, self.source)
        )

    def peer(self, dtype: str) -> nn.Module:
        """The model with the attention and expert backends that users get by default, for timing beside it."""
        key = f"{dtype} peer"
        if key not in self._models:
            self._models[key] = _default_backends(build_model(self.target, dtype, self.source))
        return self._models[key]

    def large(self) -> bool:
        """Whether the model is of a real size, where scenarios keep the batch small and run nothing twice."""
        return sum(p.numel() for p in self.model("float64").parameters()) > LARGE

    @property
    def seed(self) -> int:
        return self.target["seed"]

    def inputs(self, dtype: str, seed: int | None = None) -> dict[str, Any]:
        return build_inputs(self.target, self.model(dtype), dtype, seed)

    def specs(self) -> dict[str, Any] | None:
        """Input specs by argument name, or None where inputs come as values (a list, or the file's own)."""
        given = self.target["inputs"]
        if given is None and self.target["config_class"]:
            return derive.input_specs(self.model("float64"))
        return given if isinstance(given, dict) else None

    def made(self, specs: dict[str, Any], dtype: str, seed: int | None = None) -> dict[str, Any]:
        return cast(make_inputs(specs, self.seed if seed is None else seed), DTYPES[dtype])

    @contextlib.contextmanager
    def trying(self, dtype: str) -> Iterator[None]:
        """Within the block a source that PyTorch itself cannot run in `dtype` (mixed operands) ends as not applicable.

        Raises NotApplicableError; in float32 and float64 the source has run already, so there an error is one.
        """
        try:
            yield
        except (RuntimeError, TypeError, NotImplementedError) as error:
            if dtype in ("float32", "float64"):
                raise
            text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise NotApplicableError(f"PyTorch does not run the source in {dtype}: {text}") from error

    def run(self, dtype: str, inputs: dict[str, Any], replay: Discrete | None = None) -> tuple[Any, Discrete]:
        """One forward without gradients; returns the output and its discrete choices."""
        model = self.model(dtype)
        discrete = Discrete(model, replay)
        with torch.no_grad(), discrete.watching():
            return call(model, cast(inputs, DTYPES[dtype]), dtype, seed=self.seed), discrete


def _default_backends(model: nn.Module) -> nn.Module:
    for switch, backend in (("set_attn_implementation", "sdpa"), ("set_experts_implementation", "grouped_mm")):
        with contextlib.suppress(AttributeError, ValueError, ImportError, NotImplementedError):
            getattr(model, switch)(backend)  # classes without that backend refuse and stay eager
    return model
