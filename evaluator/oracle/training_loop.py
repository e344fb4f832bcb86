"""Scenario `loop`: the user's own training program in lifted float64, its steps recorded without editing it.

Recorded are the loss at every `backward()`, parameters and buffers after every optimizer step, and the values that each
converted step is given (the program's own variables, read where the step begins), so that the other side can be fed
with them.
"""

import ast
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from maxcode.evaluator.oracle.discrete import DRAWS
from maxcode.evaluator.oracle.learning import STEPS, _NoDropout, silence
from maxcode.evaluator.oracle.lift import computing_in
from maxcode.evaluator.oracle.noise import persistent_buffers
from maxcode.evaluator.oracle.program import Enough, Program
from maxcode.evaluator.oracle.session import NotApplicableError, Session
from maxcode.evaluator.oracle.store import Recording
from maxcode.evaluator.oracle.target import Target
from maxcode.evaluator.oracle.weights import write_source

CAPTURE = "__maxcode_inputs__"
SECONDS = 600.0
LARGE = 4_000_000  # values; of larger models the parameters after the first and last steps are kept


class Capture(ast.NodeTransformer):
    """Puts a recording call before each statement in which a converted step reads a variable first."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.wanted: dict[int, list[tuple[int, str, str]]] = {}
        for number, step in enumerate(steps):
            for given in step["inputs"]:
                self.wanted.setdefault(given["line"], []).append((number, given["name"], given["key"]))

    def tree(self, path: str, tree: ast.Module) -> ast.Module:
        """The module with the calls in it."""
        for node in list(ast.walk(tree)):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    block[:] = [s for statement in block for s in self._with_calls(statement)]
        return tree

    def _with_calls(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.With | ast.FunctionDef | ast.ClassDef):
            return [statement]
        found = self.wanted.pop(statement.lineno, [])
        calls = [ast.parse(f"{CAPTURE}({number}, {name!r}, {key})").body[0] for number, name, key in found]
        return [*(ast.copy_location(c, statement) for c in calls), statement]


class Watch:
    """Records a program's steps until there are enough of them."""

    def __init__(self, recording: Recording, case: dict[str, Any], begin: Callable[[nn.Module], None]) -> None:
        self.recording, self.case, self.begin = recording, case, begin
        self.model: nn.Module | None = None
        self.events: list[dict[str, Any]] = []
        self.losses: list[Tensor] = []
        self.steps = 0
        self.silenced: set[int] = set()
        self.drawn = ""
        self.largest: dict[str, float] = {}  # of every parameter's gradients
        self._inputs: dict[str, Any] = {}
        self._inside = 0

    def given(self, step: int, name: str, value: Any) -> None:
        """Note what a converted step is given."""
        self._inputs[name] = self.recording.tree(f"call{len(self.losses)}/{step}/{name}", _kept(value))

    def seen_enough(self) -> bool:
        """Whether all steps were recorded."""
        return self.steps >= STEPS

    def watching(self, wanted: str) -> Any:
        """A context in which models of the class `wanted` are seen."""
        return _Hooks(self, wanted)

    def entered(self, module: nn.Module, wanted: str) -> None:
        """A module is called: the first of the wanted class in training mode is the model as training finds it."""
        self._inside += 1
        if id(module) not in self.silenced:
            self.silenced.add(id(module))
            silence(module)
        if (
            self.model is None
            and module.training
            and f"{type(module).__module__}.{type(module).__qualname__}" == wanted
        ):
            self.model = module
            self.begin(module)

    def left(self) -> None:
        """A module's call has ended."""
        self._inside -= 1

    def draws(self, name: str) -> None:
        """Random numbers were drawn."""
        if self._inside and self.model is not None:
            self.drawn = self.drawn or name

    def backward(self, loss: Tensor) -> None:
        """A loss is about to be differentiated."""
        self.losses.append(loss.detach().clone())
        self.events.append({"inputs": self._inputs, "stepped": False})
        self._inputs = {}

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has taken a step."""
        if self.model is None or not self.events:
            return
        self.steps += 1
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and parameter.grad.numel():
                size = float(parameter.grad.detach().abs().max())
                self.largest[name] = max(self.largest.get(name, 0.0), size)
        self.events[-1]["stepped"] = True
        self.events[-1]["lr"] = [float(group["lr"]) for group in optimizer.param_groups]
        small = sum(p.numel() for p in self.model.parameters()) <= LARGE
        if small or self.steps in (1, STEPS):
            state = _state(self.model)
            self.events[-1]["state"] = self.recording.named(f"step{self.steps}", state)
        if self.steps >= STEPS:
            raise Enough


def _state(model: nn.Module) -> dict[str, Tensor]:
    floating = {n: b for n, b in persistent_buffers(model).items() if b.is_floating_point()}
    return dict(model.named_parameters()) | floating


def _kept(value: Any) -> Any:
    """Arrays and numbers of a value; others are not recorded."""
    if torch.is_tensor(value):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {str(k): _kept(v) for k, v in value.items() if torch.is_tensor(v) or isinstance(v, int | float)}
    if isinstance(value, list | tuple):
        return [_kept(v) for v in value]
    return value if isinstance(value, int | float | bool) else None


class _Hooks:
    """Torch's own hooks, and `backward`, for the time of a run."""

    def __init__(self, watch: Watch, wanted: str) -> None:
        self.watch, self.wanted = watch, wanted
        self._differentiating = False

    def __enter__(self) -> None:
        from torch.nn.modules import module

        self._handles = [
            module.register_module_forward_pre_hook(lambda m, *_: self.watch.entered(m, self.wanted)),
            module.register_module_forward_hook(lambda *_: self.watch.left(), always_call=True),
            register_optimizer_step_post_hook(lambda o, *_: self.watch.stepped(o)),
        ]
        self._backward, self._scale = Tensor.backward, torch.amp.GradScaler.scale
        scaled: dict[int, Tensor] = {}

        def backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
            if self._differentiating:  # torch calls itself again under function modes
                self._backward(loss, *args, **kwargs)
                return
            self.watch.backward(scaled.get(id(loss), loss))
            self._differentiating = True
            try:
                self._backward(loss, *args, **kwargs)
            finally:
                self._differentiating = False

        def scale(scaler: Any, outputs: Any) -> Any:
            result = self._scale(scaler, outputs)
            if torch.is_tensor(result):
                scaled[id(result)] = outputs
            return result

        Tensor.backward, torch.amp.GradScaler.scale = backward, scale  # type: ignore[method-assign]
        self._autocast = torch.autocast.__enter__
        torch.autocast.__enter__ = _without_autocast(self._autocast)  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        Tensor.backward, torch.amp.GradScaler.scale = self._backward, self._scale  # type: ignore[method-assign]
        torch.autocast.__enter__ = self._autocast  # type: ignore[method-assign]
        for handle in self._handles:
            handle.remove()


def _without_autocast(enter: Any) -> Any:
    """Mixed precision is lifted like explicit float32: the block computes in float64."""

    def entered(self: Any) -> Any:
        self._enabled = False
        return enter(self)

    return entered


class _Draws(_NoDropout):
    """Dropout off, and random draws inside the model noted."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in DRAWS:
            self.watch.draws(DRAWS[func])
        return super().__torch_function__(func, types, args, kwargs)


def loop(session: Session) -> Recording:
    """The first optimizer steps of the program that the target names.

    Raises:
      NotApplicableError: the target is no training program, or its converted steps are not known.
    """
    target = session.target
    training = target["training"]
    table = Path(session.source).parent / "training.json" if session.source else None
    if not training:
        raise NotApplicableError("the target is a model, not a training program")
    if table is None or not table.is_file():
        raise ValueError(f"{table}: no record of the program's converted steps; convert it again")
    steps = json.loads(table.read_text())["steps"]
    recording = Recording("loop", "loop", "float64")
    case = recording.case("seed0", {}, dropout_off=True)
    begin = Path(session.source).parent / "loop_source"
    watch = Watch(recording, case, lambda model: write_source(target, model, begin, None) and None)
    ended = _run(target, steps, watch)
    case |= {"ended": ended, "steps": watch.steps, "events": watch.events, "drawn": watch.drawn}
    case["largest_gradients"] = watch.largest
    if watch.losses:
        case["losses"] = recording.put("losses", torch.stack([v.double().reshape(()) for v in watch.losses]))
        again = Watch(Recording("loop", "loop", "float64"), {}, _nudge)
        _run(target, steps, again)
        case["own_error"] = _own_error(recording, watch, again)
    return recording


def _run(target: Target, steps: list[dict[str, Any]], watch: Watch) -> bool:
    """One run of the program from the target's seed; whether it ended by itself."""
    torch.manual_seed(target["seed"])
    random.seed(target["seed"])
    numpy.random.seed(target["seed"])  # noqa: TID251 - the generator that programs use
    program = Program(target["training"], rewrite=Capture(steps).tree)
    program.globals[CAPTURE] = watch.given
    wanted = f"{target['module']}.{target['class_name']}"
    with computing_in("float64"), _Draws(watch), watch.watching(wanted):
        return program.run(watch, seconds=SECONDS)


def _nudge(model: nn.Module) -> None:
    """Moves every parameter by one unit in its last place: what comes of that no port can be held to."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))


def _own_error(recording: Recording, watch: Watch, again: Watch) -> dict[str, float]:
    """Per parameter or statistic, and for "loss", how far PyTorch's own two runs part: max|a-b| / max|b|."""
    count = min(len(watch.losses), len(again.losses))
    pairs = [(a, b) for a, b in zip(watch.losses[:count], again.losses[:count], strict=True)]
    found = {"loss": max((_parted(a, b) for a, b in pairs), default=0.0)}
    for first, second in zip(watch.events, again.events, strict=False):
        for name, key in first.get("state", {}).items():
            other = second.get("state", {}).get(name)
            if other is not None:
                error = _parted(recording.tensor(key), again.recording.tensor(other))
                found[name] = max(found.get(name, 0.0), error)
    return found


def _parted(a: Tensor, b: Tensor) -> float:
    peak = float(a.abs().max()) if a.numel() else 0.0
    return float((a - b).abs().max()) / peak if peak else 0.0
