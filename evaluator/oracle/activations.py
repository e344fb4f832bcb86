"""Scenarios `modules` and `dtypes`: what every submodule call took and gave, for bisection and the dtype check."""

import inspect
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from maxcode.evaluator.oracle.build import call
from maxcode.evaluator.oracle.flatten import bind, dtype_name, flatten
from maxcode.evaluator.oracle.operations import Operations
from maxcode.evaluator.oracle.session import Session
from maxcode.evaluator.oracle.store import Recording

MAX_BYTES = 1 << 30  # of recorded activations; later calls are listed with null keys


class Watcher:
    """Forward hooks on every submodule. `calls` are in the order in which they end: the innermost first."""

    def __init__(self, model: nn.Module, *, keep_tensors: bool) -> None:
        self.calls: list[dict[str, Any]] = []
        self._model, self._keep, self._room = model, keep_tensors, MAX_BYTES
        self._open: list[dict[str, Tensor]] = []
        self._counts: Counter[str] = Counter()

    def run(self, inputs: dict[str, Any], dtype: str, seed: int) -> Any:
        handles = []
        for name, module in self._model.named_modules():
            handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            handles.append(module.register_forward_hook(self._leaver(name), with_kwargs=True))
        try:
            with torch.no_grad():
                return call(self._model, inputs, dtype, seed=seed)
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        # copied now: some models change their arguments in place
        given = flatten(bind(module.forward, args, kwargs))
        self._open.append({n: self._take(v) for n, v in given.items()})

    def _leaver(self, name: str) -> Any:
        def leave(module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
            record = {"fqn": name, "call": self._counts[name], **where(type(module)), "inputs": self._open.pop()}
            record["outputs"] = {n: self._take(v) for n, v in flatten(output).items()}
            self._counts[name] += 1
            self.calls.append(record)

        return leave

    def _take(self, value: Tensor) -> Tensor:
        """A copy while there is room, else (or when only dtypes are asked for) an empty tensor on the meta device."""
        size = value.numel() * value.element_size()
        if not self._keep or size > self._room:
            return value.detach().to("meta")
        self._room -= size
        return value.detach().clone()


def modules(session: Session) -> Recording:
    """Float64 lifted, the first `exact` case: tensors in and out of every submodule call."""
    recording, watcher = (
        Recording("modules", "modules", "float64"),
        Watcher(session.model("float64"), keep_tensors=True),
    )
    inputs = session.inputs("float64")
    case = recording.case("seed0", inputs, watcher.run(inputs, "float64", session.seed))
    case["modules"] = [_stored(recording, number, entry) for number, entry in enumerate(watcher.calls)]
    return recording


def _stored(recording: Recording, number: int, entry: dict[str, Any]) -> dict[str, Any]:
    keys = {}
    for side in ("inputs", "outputs"):
        keys[side] = {
            name: None if value.is_meta else recording.put(f"seed0/{number}.{entry['fqn']}/{side}.{name}", value)
            for name, value in entry[side].items()
        }
    return entry | keys


def dtypes(session: Session) -> Recording:
    """Bfloat16: dtype names at every submodule boundary (`dtypes`, `input_dtypes`), and of `operations` inside."""
    recording, model = Recording("dtypes", "modules", "bfloat16"), session.model("bfloat16")
    watcher, inputs = Watcher(model, keep_tensors=False), session.inputs("bfloat16")
    with session.trying("bfloat16"), Operations(model) as operations:
        case = recording.case("seed0", inputs, watcher.run(inputs, "bfloat16", session.seed))
    case["operations"], case["widened"] = operations.record(), operations.widened()
    case["modules"] = []
    for entry in watcher.calls:
        named = {side: {n: dtype_name(v.dtype) for n, v in entry.pop(side).items()} for side in ("inputs", "outputs")}
        case["modules"].append(entry | {"dtypes": named["outputs"], "input_dtypes": named["inputs"]})
    return recording


def where(cls: type) -> dict[str, Any]:
    """Class name, file and line of its `forward`."""
    try:
        file, line = inspect.getsourcefile(cls.forward), inspect.getsourcelines(cls.forward)[1]
    except (OSError, TypeError, AttributeError):
        file, line = None, None
    return {"class": f"{cls.__module__}.{cls.__qualname__}", "file": file, "line": line}
