"""Put steps into the loops of a function; the state of training leaves the model before and comes back after."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition, callees
from maxcode.converter.nodes import read_before_write
from maxcode.converter.training.regions import Region, is_region, optimizer_key, read_region
from maxcode.converter.training.statements import SCHEDULE, STEP, ZERO, LoopError, flattened, kind_of
from maxcode.converter.training.steps import Step, write_step
from maxcode.converter.training.variables import key_of, reads

_LOOPS = (ast.For, ast.While)
_FIELDS = ("body", "orelse", "finalbody")


@dataclass
class Place:
    """A block, and the statements around it, outermost first, each with the block it stands in."""

    block: list[ast.stmt]
    around: tuple[tuple[list[ast.stmt], ast.stmt], ...]


def places(function: ast.FunctionDef) -> Iterator[Place]:
    """Every block of a function; those of inner functions are not its own."""

    def walk(block: list[ast.stmt], around: tuple) -> Iterator[Place]:
        yield Place(block, around)
        for statement in block:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            for field in _FIELDS:
                inner = getattr(statement, field, None)
                if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                    yield from walk(inner, (*around, (block, statement)))
            for handler in getattr(statement, "handlers", ()):
                yield from walk(handler.body, (*around, (block, statement)))

    yield from walk(function.body, ())


class Loops:
    """The loops of one function of the host."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef, names: set[str]) -> None:
        self.context, self.definition, self.function, self.names = context, definition, function, names
        used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {
            a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)
        }
        self.graph, self.state = _unused("graph", used), _unused("state", used)

    def run(self) -> list[Step]:
        """Rewrite the function in place; returns the steps to write beside it."""
        for node in ast.walk(self.function):
            if isinstance(node, ast.Call) and (modules := [c for c in callees(node) if c.startswith("module:")]):
                node.func.seen = {"kinds": ["module"], "names": modules}
        found = [p for p in places(self.function) if is_region(p.block) and not _within_steering(p)]
        updates = [p for p in places(self.function) if _is_update(p) and not _within_steering(p)]
        if not found:
            return []
        if len(found) > 1 or updates:
            raise LoopError(
                found[-1].block[0], "backward() and step() in several loops", "put them into one loop's body"
            )
        place = found[0]
        step = self._write(place)
        self._insert(place, step)
        return [step]

    def _write(self, place: Place) -> Step:
        region = read_region(place.block)
        optimizer = optimizer_key(region)
        if optimizer is None:
            raise LoopError(region.statement, "no optimizer takes a step in this block", "")
        later = _read_later(self.function, place, region)
        names = (_unused("compute_loss", self.names), _unused("train_step", self.names))
        self.names |= set(names)
        step = write_step(self.context, region, optimizer, names, later, (self.graph, self.state))
        place.block[:] = step.call
        return step

    def _insert(self, place: Place, step: Step) -> None:
        """Take the state out before the innermost loop around the step, and put it back after it."""
        loops = [(block, s) for block, s in place.around if isinstance(s, _LOOPS)]
        if loops:
            block, loop = loops[-1]
            self._guard(loop, step)
            at = block.index(loop)
            block[at : at + 1] = [*self._start(step), loop, *self._finish(step)]
        else:
            at = next(i for i, s in enumerate(place.block) if any(s is c for c in step.call))
            place.block[at:at] = self._start(step)
            end = max(i for i, s in enumerate(place.block) if any(s is c for c in step.call))
            place.block[end + 1 : end + 1] = self._finish(step)

    def _start(self, step: Step) -> list[ast.stmt]:
        flag = ", accumulates=True" if step.accumulates else ""
        text = f"{self.graph}, {self.state} = start({step.model}, {step.optimizer}{flag})"
        self.context.use("train_state", "start")
        return ast.parse(text).body

    def _finish(self, step: Step) -> list[ast.stmt]:
        self.context.use("train_state", "finish")
        return ast.parse(f"finish({step.model}, {step.optimizer}, {self.state})").body

    def _guard(self, loop: ast.stmt, step: Step) -> None:
        """Around statements of the loop that use the model or leave the function, the state goes back to the model."""
        own = {id(s) for s in step.call}
        for block in _inner_blocks(loop):
            for statement in list(block):
                if id(statement) in own and not self._uses(statement, step):
                    continue
                at = next(i for i, s in enumerate(block) if s is statement)
                if isinstance(statement, ast.Return):
                    block[at:at] = self._finish(step)
                elif self._is_simple(statement) and self._uses(statement, step):
                    block[at : at + 1] = [*self._finish(step), statement, *self._start(step)]

    def _is_simple(self, statement: ast.stmt) -> bool:
        return not isinstance(statement, ast.If | ast.FunctionDef)

    def _uses(self, statement: ast.stmt, step: Step) -> bool:
        if isinstance(statement, ast.If):
            return False
        text = ast.unparse(statement)
        if (
            text.startswith(f"{step.model}.")
            or f"{self.state} = " in text.partition("\n")[0]
            or "= train_step(" in text
        ):
            return f"{self.state}" not in text and text.startswith(f"{step.model}.")
        if kind_of(statement) == SCHEDULE:
            return False
        keys = set(reads([statement]))
        if step.model in keys:
            return True
        return any(self._may_use(node, step) for node in ast.walk(statement) if isinstance(node, ast.Call))

    def _may_use(self, node: ast.Call, step: Step) -> bool:
        """Whether a function of the program that is called may reach the model by itself, as a global or by `self`."""
        wanted = step.model.rpartition(".")[2]
        for qualified in callees(node):
            located = self.context.project.lookup(qualified)
            if located is None and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "self":
                return True
            if located is not None and isinstance(located[1], ast.FunctionDef):
                names = {n.id for n in ast.walk(located[1]) if isinstance(n, ast.Name)}
                if wanted in names - {a.arg for a in ast.walk(located[1].args) if isinstance(a, ast.arg)}:
                    return True
        return False


def _inner_blocks(loop: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The loop's own blocks and those of its `if`s, not those of loops within."""
    for field in _FIELDS:
        block = getattr(loop, field, None)
        if isinstance(block, list) and block:
            yield block
            for statement in block:
                if isinstance(statement, ast.If | ast.With | ast.Try):
                    yield from _inner_blocks(statement)


def _within_steering(place: Place) -> bool:
    """Whether a block is one of a `with` that the block around it takes apart."""
    return bool(place.around) and isinstance(place.around[-1][1], ast.With)


def _is_update(place: Place) -> bool:
    """Whether an optimizer takes a step in a block without a `backward`, which no block around it has either."""
    if is_region(place.block) or any(is_region(block) for block, _ in place.around):
        return False
    return any(kind_of(s) == STEP for s in flattened(place.block))


def _read_later(function: ast.FunctionDef, place: Place, region: Region) -> set[str]:
    """Variables that the host may read after a step before it binds them again."""
    device = {id(n) for s in region.slice.device for n in ast.walk(s)}
    attributes = {
        key for key, node in _all_reads(function) if id(node) not in device and isinstance(node, ast.Attribute)
    }
    host = [s for s in flattened(place.block) if not any(s is d for d in region.slice.device)]
    live = {n.id for s in host for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for block, statement in place.around:
        at = next(i for i, s in enumerate(block) if s is statement)
        live |= read_before_write(block[at + 1 :], kept=False)
        if isinstance(statement, _LOOPS):
            live |= read_before_write([statement], kept=False)
    return live | attributes


def _all_reads(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Load) and (key := key_of(child)):
            yield key, child


def _unused(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted


__all__ = ["ZERO", "Loops", "Place", "places", "tables"]
