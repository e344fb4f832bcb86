"""`resolve` of a training program: an instrumented run names the model that it trains, how it is built and called."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.flatten import bind, dtype_name
from maxcode.evaluator.oracle.instrument import Recorder, _qualified
from maxcode.evaluator.oracle.program import Enough, Program
from maxcode.evaluator.oracle.target import Target

STEPS, SECONDS = 24, 120.0  # what the instrumented run sees of a long program
MOST_STEPS = 400


class Building(Recorder):
    """A recorder that also keeps the arguments with which modules are built."""

    def __init__(self) -> None:
        super().__init__()
        self.built: dict[int, tuple[nn.Module, tuple, dict[str, Any]]] = {}
        self.lines: dict[int, int] = {}  # of the script's statement that was running

    def call(self, path: str, site: int, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Note modules that a call of their class makes."""
        result = super().call(path, site, function, *args, **kwargs)
        if isinstance(function, type) and issubclass(function, nn.Module):
            self.built[id(result)] = (result, args, kwargs)
            self.lines[id(result)] = _top_level_line(path)
        return result


def _top_level_line(path: str) -> int:
    """Line of the statement of the file itself that is running; past the end where there is none."""
    frame, line = sys._getframe(), 1 << 30
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename == path:
            line = frame.f_lineno
        frame = frame.f_back
    return line


class Watching:
    """Optimizer steps, and the modules that the program itself calls."""

    def __init__(self) -> None:
        self.steps = 0
        self.graded: set[int] = set()  # parameters that had a gradient at some step
        self.optimizers: list[Optimizer] = []
        self.called: dict[int, tuple[nn.Module, tuple, dict[str, Any], bool]] = {}
        self._depth = 0
        self._handles: list[Any] = []

    def __enter__(self) -> "Watching":
        from torch.nn.modules import module

        self._handles = [
            module.register_module_forward_pre_hook(self._entered),
            module.register_module_forward_hook(self._left, always_call=True),
            register_optimizer_step_post_hook(self._stepped),
        ]
        self._own = nn.Module.__call__
        watching = self

        def call(self_: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if watching._depth == 0:
                known = watching.called.get(id(self_))
                if known is None or (self_.training and not known[3]):
                    watching.called[id(self_)] = (self_, args, kwargs, self_.training)
            return watching._own(self_, *args, **kwargs)

        nn.Module.__call__ = call  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        nn.Module.__call__ = self._own  # type: ignore[method-assign]
        for handle in self._handles:
            handle.remove()

    def seen_enough(self) -> bool:
        """Whether the steps that are wanted have been taken."""
        return self.steps >= STEPS

    def _entered(self, *_: object) -> None:
        self._depth += 1

    def _left(self, *_: object) -> None:
        self._depth -= 1

    def _stepped(self, optimizer: Optimizer, *_: object) -> None:
        if all(optimizer is not known for known in self.optimizers):
            self.optimizers.append(optimizer)
        self.steps += optimizer is self.optimizers[0]
        self.graded |= {id(p) for g in optimizer.param_groups for p in g["params"] if p.grad is not None}
        if self.steps >= MOST_STEPS:
            raise Enough

    def trained(self) -> list[tuple[nn.Module, tuple, dict[str, Any], bool]]:
        """Calls of the modules that hold parameters of an optimizer, in the order of their first call."""
        owned = {id(p) for o in self.optimizers for g in o.param_groups for p in g["params"]}
        return [c for c in self.called.values() if owned & {id(p) for p in c[0].parameters()}]


def resolve_training(target: Target) -> Target:
    """The target of the model that the program trains, with `training` filled and `training.facts` from the run.

    Raises:
      OracleError: the program does not run, trains nothing, or trains a model that cannot be named.
    """
    training = dict(target["training"])
    torch.manual_seed(target["seed"])
    recorder, watching = Building(), Watching()
    program = Program(training, recorder)
    with watching:
        ended = program.run(watching, seconds=SECONDS)
    where = training["file"]
    if not watching.optimizers:
        do = "name the file that trains; the loop must call optimizer.step()"
        raise OracleError(where, "no optimizer took a step", "a training program", do)
    models = watching.trained()
    if not models:
        raise OracleError(where, "no called module holds what the optimizer updates", "a model that is called", "")
    model, args, kwargs, _ = models[0]
    facts = {"files": recorder.to_json(), "models": [_qualified(type(m[0])) for m in models]}
    owned = {id(p) for o in watching.optimizers for g in o.param_groups for p in g["params"]}
    until = min(_program_line(program), recorder.lines.get(id(model), 1 << 30))
    training |= {
        "module": program.name, "steps": watching.steps, "ended": ended, "facts": facts,
        "optimizers": [type(o).__name__ for o in watching.optimizers], "until": until,
        "unused": [n for n, p in model.named_parameters() if id(p) in owned - watching.graded],
    }  # fmt: skip
    target |= {"training": training} | _model_of(program, recorder, model)
    target["inputs"] = {name: _spec(value) for name, value in bind(model.forward, args, kwargs).items()}
    sys.modules.pop(program.name, None)
    return target


def _program_line(program: Program) -> int:
    from maxcode.evaluator.oracle.script import first_line

    return first_line(program.tree)


def _model_of(program: Program, recorder: Building, model: nn.Module) -> dict[str, Any]:
    cls = type(model)
    home = sys.modules.get(cls.__module__)
    if id(model) not in recorder.built or getattr(home, cls.__qualname__, None) is not cls:
        found = f"{cls.__qualname__}, which no top-level class of the program's own files makes"
        raise OracleError(str(program.path), found, "a model whose class is defined in a file", "write a class for it")
    _, args, kwargs = recorder.built[id(model)]
    init = _plain(program, cls, bind(cls, args, kwargs))
    path = str(program.path) if cls.__module__ == program.name else None
    return {"module": cls.__module__, "class_name": cls.__name__, "path": path, "init": init}


def _plain(program: Program, cls: type, named: dict[str, Any]) -> dict[str, Any]:
    for name, value in named.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            found = f"argument {name!r} of {cls.__name__} is a {type(value).__name__}"
            do = "give the constructor numbers, texts, lists or dictionaries of them"
            raise OracleError(str(program.path), found, "a value that config.json can hold", do) from None
    return named


def _spec(value: Any) -> Any:
    """An input specification for what the model was given."""
    if torch.is_tensor(value):
        spec: dict[str, Any] = {"shape": list(value.shape), "dtype": dtype_name(value.dtype)}
        if not value.is_floating_point() and value.numel():
            spec |= {"low": int(value.min()), "high": int(value.max()) + 1}
        elif value.dtype is torch.float64:
            spec["dtype"] = "float32"
        return spec
    if isinstance(value, dict):
        return {"kind": "dict", "items": {key: _spec(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return {"kind": "list" if isinstance(value, list) else "tuple", "items": [_spec(item) for item in value]}
    return {"kind": "const", "value": value}


def save_facts(target: Target, folder: Path) -> Target:
    """Move the run's facts out of the target into `training_facts.json` beside it."""
    facts = target["training"].pop("facts", None)
    if facts is not None:
        (folder / "training_facts.json").write_text(json.dumps(facts, default=str))
    return target
