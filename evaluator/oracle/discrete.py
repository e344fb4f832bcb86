"""Discrete choices and random draws inside a forward pass: recorded in order, and replayed.

Two correct ports may order near-equal scores differently in low precision; everything after such a flip differs for a
reason that is no fault. So the indices that top-k, sort and argmax choose are recorded with the scores they chose from,
and a low-precision run can be given the recorded indices. Models that sample in forward take their draws from here too.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from maxcode.evaluator.oracle.flatten import dtype_name
from maxcode.evaluator.oracle.store import Recording

_PAIRS = {torch.topk: "topk", torch.Tensor.topk: "topk", torch.sort: "sort", torch.Tensor.sort: "sort"}
_INDICES = {
    torch.argmax: "argmax",
    torch.Tensor.argmax: "argmax",
    torch.argmin: "argmin",
    torch.Tensor.argmin: "argmin",
    torch.argsort: "argsort",
    torch.Tensor.argsort: "argsort",
}
_REDUCTIONS = {torch.max: "max", torch.Tensor.max: "max", torch.min: "min", torch.Tensor.min: "min"}
CHOICES = _PAIRS | _INDICES | _REDUCTIONS
_DRAW_NAMES = (
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli"),
    *("multinomial", "normal_", "uniform_", "bernoulli_", "exponential_", "random_"),
)
DRAWS = {getattr(owner, name): name for owner in (torch, torch.Tensor) for name in _DRAW_NAMES if hasattr(owner, name)}
MAX_INPUT = 1 << 20  # scores of larger choices are not stored, their indices are


class Discrete(TorchFunctionMode):
    """Records choices and draws of one run; with `replay`, answers choices and draws from an earlier one.

    Attributes:
      choices: per choice {"op", "module", "dim", "k", "largest"} and the tensors "input", "indices".
      draws: per draw {"op", "module"} and the tensor "value".
      flips: with replay, per choice the number of differing indices.
    """

    def __init__(self, model: nn.Module, replay: "Discrete | None" = None) -> None:
        super().__init__()
        self.choices: list[dict[str, Any]] = []
        self.draws: list[dict[str, Any]] = []
        self.flips: list[int] = []
        self._replay = replay
        self._names = {id(module): name for name, module in model.named_modules()}
        self._stack: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator["Discrete"]:
        """Active inside the block, with the module that is running known by name."""
        enter = nn.modules.module.register_module_forward_pre_hook(self._enter)
        leave = nn.modules.module.register_module_forward_hook(self._leave, always_call=True)
        try:
            with self:
                yield self
        finally:
            enter.remove()
            leave.remove()

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._stack.append(self._names.get(id(module), self._stack[-1] if self._stack else ""))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._stack:
            self._stack.pop()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in CHOICES:
            return self._choice(func, args, kwargs or {}, result)
        if func in DRAWS and torch.is_tensor(result):
            return self._draw(func, result)
        return result

    def _where(self) -> str:
        return self._stack[-1] if self._stack else ""

    def _choice(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> Any:
        scores = args[0] if args else kwargs.get("input")
        if torch.is_tensor(result) and func not in _INDICES:
            return result  # max over everything, or of two tensors: a value, no choice
        if not torch.is_tensor(scores) or not scores.is_floating_point():
            return result
        dim = _dimension(func, args, kwargs)
        indices = result if func in _INDICES else result[1]
        number = len(self.choices)
        record = {"op": CHOICES[func], "module": self._where(), "dim": dim, "indices": indices.detach().clone()}
        record["dtype"] = dtype_name(scores.dtype)
        record["input"] = scores.detach().clone() if scores.numel() <= MAX_INPUT else None
        self.choices.append(record)
        if self._replay is None or number >= len(self._replay.choices):
            return result
        return self._replayed(func, scores, dim, result, indices, self._replay.choices[number]["indices"])

    def _replayed(self, func: Any, scores: Tensor, dim: int | None, result: Any, own: Tensor, given: Tensor) -> Any:
        if own.shape != given.shape:
            self.flips.append(own.numel())
            return result
        self.flips.append(int((own != given).sum()))
        if func in _INDICES:
            return given.clone()
        assert dim is not None
        picked = given if given.dim() == scores.dim() else given.unsqueeze(dim)
        values = scores.gather(dim, picked)
        if given.dim() != scores.dim():
            values = values.squeeze(dim)
        return type(result)((values, given.clone()))

    def _draw(self, func: Any, result: Tensor) -> Tensor:
        number = len(self.draws)
        if self._replay is not None and number < len(self._replay.draws):
            value = self._replay.draws[number]["value"]
            if value.shape == result.shape:
                result = result.copy_(value) if DRAWS[func].endswith("_") else value.to(result.dtype)
        self.draws.append({"op": DRAWS[func], "module": self._where(), "value": result.detach().clone()})
        return result

    def record_into(self, recording: Recording, case: dict[str, Any]) -> None:
        """Adds `choices` [{"op", "module", "dim", "indices": key, "input": key or null}] and `draws` to a case."""
        for kind, events in (("choice", self.choices), ("draw", self.draws)):
            case[kind + "s"] = [
                {
                    name: recording.put(f"{case['id']}/{kind}.{number}.{name}", value)
                    if torch.is_tensor(value)
                    else value
                    for name, value in event.items()
                }
                for number, event in enumerate(events)
            ]

    def ties(self) -> bool:
        """Whether a top-k left out, or ordered by chance, a score exactly equal to one that it chose."""
        return any(_tied(choice) for choice in self.choices if choice["op"] == "topk" and choice["input"] is not None)


def _tied(choice: dict[str, Any]) -> bool:
    scores = choice["input"].movedim(choice["dim"], -1)
    picked = choice["indices"].movedim(choice["dim"], -1)
    chosen = scores.gather(-1, picked)
    # every score equal to a chosen one, counted over all: more than one each means a tie that matters
    equal = (scores.unsqueeze(-2) == chosen.unsqueeze(-1)) & torch.isfinite(chosen).unsqueeze(-1)
    return bool((equal.sum(-1) > 1).any())


def _dimension(func: Any, args: tuple, kwargs: dict[str, Any]) -> int | None:
    position = {"topk": 2, "sort": 1, "argsort": 1}.get(CHOICES[func], 1)
    default = None if CHOICES[func] in ("argmax", "argmin") else -1
    value = kwargs.get("dim", args[position] if len(args) > position else default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
