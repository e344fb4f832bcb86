"""`loop`: the converted training program, fed with PyTorch's own batches, takes the same steps."""

import importlib
import inspect
import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.gradients import parameter_values
from maxcode.evaluator.checks.registry import Context, NotApplicable, NotRun, check
from maxcode.evaluator.checks.training import without_dropout
from maxcode.evaluator.compare import difference
from maxcode.evaluator.package import Package, value_of, variable
from maxcode.evaluator.recording import Case
from maxcode.evaluator.verdict import Check


class Enough(BaseException):
    """All recorded steps were taken; no handler of the program takes it for an error."""


@check("loop", group="x64")
def loop(context: Context) -> Check:
    """Losses before, and parameters and batch statistics after every optimizer step of the program itself agree."""
    package = context.package
    if package.submodule("training") is None:
        raise NotApplicable("the target is a model, not a training program")
    case = context.scenario("loop").cases[0]
    record = case.record
    if record["drawn"]:
        raise NotRun(f"the model draws random numbers in training ({record['drawn']}), which are not replayed")
    if not record["steps"]:
        raise NotRun("PyTorch's run of the program took no step of the model that was seen")
    if record["steps"] < tolerance.TRAINING_STEPS and not record["ended"]:
        raise NotRun(f"PyTorch took {record['steps']} steps in the time given, not {tolerance.TRAINING_STEPS}")
    package.lift()
    replay = Replay(context, case)
    replay.run()
    return replay.verdict()


class Replay:
    """One run of `training.py`, whose model starts from the recorded weights and whose steps get recorded values."""

    def __init__(self, context: Context, case: Case) -> None:
        self.context, self.case, self.package = context, case, context.package
        self.events = case.record["events"]
        self.losses: list[float] = []
        self.errors: list[tuple[float, float, str, int]] = []  # share of the limit, error, name, optimizer step
        self.own = case.record.get("own_error", {})
        self.graph: Any = None
        self.steps = 0
        self.missing: list[str] = []
        largest = case.record["largest_gradients"]
        floor = tolerance.GRADIENT_NOISE * max(largest.values(), default=0.0)
        # An optimizer that divides by the size of the gradient turns rounding errors into steps of full size.
        self.noise = sorted(name for name, size in largest.items() if 0 < size <= floor)

    def run(self) -> None:
        """Run the program until every recorded step was taken, or to its end."""
        module = importlib.import_module(f"{self.package.name}.training")
        table = module_table(self.package)
        for step in table["steps"]:
            setattr(module, step["function"], self._fed(getattr(module, step["function"]), step))
        model_class = self.package.module.Model
        original = model_class.from_config.__func__
        replay = self

        def from_config(cls: Any, config: Any, *, rngs: nnx.Rngs) -> Any:
            wide = config.replace(**replay.package.overrides("float64"))
            model = original(cls, wide, rngs=rngs)
            return replay._filled(model) if cls is model_class else model

        model_class.from_config = classmethod(from_config)
        random = self.package.submodule("random")
        try:
            with without_dropout(self.package, nnx.Dict()), random.key_scope(jax.random.key(0)):
                getattr(module, table["entry"])()
        except Enough:
            pass
        finally:
            model_class.from_config = classmethod(original)

    def _filled(self, model: nnx.Module) -> nnx.Module:
        """The model with the weights that PyTorch's training began with."""
        silence(model)
        recorded, folder = self.context.oracle.folder.parent / "loop_source", self.context.out.parent / "loop_source"
        folder.mkdir(exist_ok=True)
        for file in recorded.iterdir():
            if not (folder / file.name).exists():
                (folder / file.name).symlink_to(file)
        (folder / "weights.json").write_text(json.dumps(self.package.weight_map()))
        self.package.submodule("pretrained").Weights(model, folder).fill()
        return model

    def _fed(self, step: Callable[..., Any], about: dict[str, Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(step).parameters)
        given = {i["name"] for i in about["inputs"]}

        def fed(*args: Any, **kwargs: Any) -> Any:
            number = len(self.losses)
            if number >= len(self.events):
                raise Enough
            values = dict(zip(parameters, args, strict=False)) | kwargs
            recorded = self.case.tree(self.events[number]["inputs"])
            if gone := sorted(given - set(recorded)):
                self.missing += gone
            values |= {n: _as_given(recorded[n], values[n]) for n in given & set(recorded) if n in values}
            self.graph = values["graph"]
            result = step(**values)
            self.losses.append(float(result[1]))
            if self.events[number]["stepped"]:
                self.steps += 1
                self._compare(result[0], self.events[number])
            return result

        return fed

    def _compare(self, state: Any, event: dict[str, Any]) -> None:
        if "state" not in event:
            return
        model = nnx.merge(self.graph, state.params, state.rest, copy=True)
        expected = {name: self.case.read(key) for name, key in event["state"].items()}
        largest = max((float(np.abs(v).max(initial=0.0)) for v in expected.values()), default=0.0)
        left = set(expected)
        for row in self.package.rows(model):
            if row.copy:
                continue
            leaf = np.asarray(value_of(variable(model, row.target)), np.float64)
            for name, actual in parameter_values(row, leaf, list(expected)):
                left.discard(name)
                if name in self.noise:
                    continue
                error = _error(actual, expected[name], largest)
                self.errors.append((error / self._limit(name), error, name, self.steps))
        self.missing += sorted(left)

    def verdict(self) -> Check:
        """What the run has shown."""
        wanted = np.asarray(self.case.array("losses"))
        count = min(len(wanted), len(self.losses))
        found = difference(np.asarray(self.losses[:count]), wanted[:count])
        share, worst, name, step = max(self.errors, default=(float("inf"), float("inf"), "no parameter", 0))
        complete = len(self.losses) == len(wanted) and self.steps == self.case.record["steps"] and not self.missing
        detail = f"{len(self.losses)} of {len(wanted)} losses {self.losses[0]:.6g} .. {self.losses[-1]:.6g}: {found}"
        detail += f"; {self.steps} optimizer steps, worst parameter {name} {worst:.1e} after step {step}; dropout off"
        if self.noise:
            detail += f"; gradients of {', '.join(self.noise[:5])} are rounding errors alone, so these are not compared"
        detail += f"; not compared: {sorted(set(self.missing))[:5]}" if self.missing else ""
        if found.error / self._limit("loss") > share:
            worst, name = found.error, "loss"
        if self._limit(name) > tolerance.TRAINING:
            detail += (
                f"; PyTorch's own {name} moves by {self.own[name]:.1e} for one unit in the last place of its weights"
            )
        return Check.of("loop", worst, self._limit(name), detail, ok=complete)

    def _limit(self, name: str) -> float:
        """How close a parameter, a statistic or the "loss" has to be."""
        own = self.own.get(name, 0.0)
        return max(tolerance.TRAINING, tolerance.OWN_FACTOR * own) if own <= tolerance.OWN_MOST else tolerance.TRAINING


def _as_given(recorded: Any, own: Any) -> Any:
    """The recorded value in the structure that the program passes (tuples stay tuples)."""
    if isinstance(recorded, list) and isinstance(own, tuple):
        return tuple(_as_given(r, o) for r, o in zip(recorded, own, strict=True))
    if isinstance(recorded, list):
        return [_as_given(r, None) for r in recorded]
    if isinstance(recorded, dict):
        return {k: _as_given(v, None) for k, v in recorded.items()}
    return jax.numpy.asarray(recorded) if isinstance(recorded, np.ndarray) else recorded


def _error(actual: np.ndarray, wanted: np.ndarray, largest: float) -> float:
    if actual.shape != wanted.shape:
        return float("inf")
    peak = max(float(np.abs(wanted).max(initial=0.0)), tolerance.GRADIENT_FLOOR * largest, 1e-300)
    gap = np.abs(actual - wanted.astype(np.float64))
    return float("inf") if np.isnan(gap).any() else float(gap.max(initial=0.0)) / peak


def silence(model: nnx.Module) -> None:
    """Every rate of dropout or jitter 0."""
    from maxcode.evaluator.checks.training import RATES

    for _, module in nnx.iter_graph(model):
        if isinstance(module, nnx.Module):
            for name in [n for n, v in vars(module).items() if isinstance(v, float) and any(r in n for r in RATES)]:
                setattr(module, name, 0.0)


def module_table(package: Package) -> dict[str, Any]:
    """The package's training.json: entry and steps."""
    return json.loads((package.root / "training.json").read_text())
