"""Find the statements of a loop that make one training step, and what a compiled step is given and gives back."""

import ast
from dataclasses import dataclass, field

from maxcode.converter.context import Context, kinds, seen
from maxcode.converter.training.slicing import Slice, slice_loss
from maxcode.converter.training.statements import (
    BACKWARD,
    CLIP,
    DEVICE,
    SCALER,
    STEP,
    ZERO,
    LoopError,
    flattened,
    kind_of,
    loss_of,
    optimizer_of,
    parts,
    scales,
)  # fmt: skip
from maxcode.converter.training.variables import binds, key_of, reads

TRACED, STATIC, MODEL, OPTIMIZER = "traced", "static", "model", "optimizer"


@dataclass
class Region:
    """One training step in a block.

    Args:
      loss: the expression that is differentiated.
      slice: the statements above `backward`.
      tail: statements below it that the step compiles: clipping and the optimizer's step, as calls.
      after: host statements below it.
      condition: what the optimizer's step depends on, None where it always happens.
      conditional: host statements that run where it happens.
      accumulates: whether gradients are added up over steps.
      zeroed: whether they are set to zero after the optimizer's step.
    """

    statement: ast.stmt
    loss: ast.expr
    slice: Slice
    tail: list[ast.stmt] = field(default_factory=list)
    after: list[ast.stmt] = field(default_factory=list)
    condition: ast.expr | None = None
    conditional: list[ast.stmt] = field(default_factory=list)
    accumulates: bool = False
    zeroed: bool = False
    if_finite: bool = False
    conditions: dict[int, ast.expr] = field(default_factory=dict)  # of clipping, by statement

    @property
    def steps(self) -> list[ast.Call]:
        """Calls of optimizers' `step`."""
        return [s.value for s in self.tail if kind_of(s) == STEP]

    @property
    def clips(self) -> list[tuple[ast.Call, ast.expr | None]]:
        """Calls that clip gradients, each with what it depends on."""
        return [(s.value, self.conditions.get(id(s))) for s in self.tail if kind_of(s) == CLIP]


def is_region(block: list[ast.stmt]) -> bool:
    """Whether a `backward` stands in a block itself."""
    return any(kind_of(s) == BACKWARD for s in flattened(block))


def read_region(block: list[ast.stmt]) -> Region:
    """The region of a block with a `backward` in it.

    Raises:
      LoopError: several of them, or an order that is not understood.
    """
    statements = flattened(block)
    places = [i for i, s in enumerate(statements) if kind_of(s) == BACKWARD]
    if len(places) > 1:
        raise LoopError(
            statements[places[1]], "a second backward() in one step", "train one model with one loss a step"
        )
    at = places[0]
    above, below = statements[:at], statements[at + 1 :]
    loss = loss_of(statements[at])
    region = Region(statements[at], loss, slice_loss(above, loss), if_finite=scales(statements[at]))
    zero_above = any(kind_of(s) == ZERO for s in above)
    _read_tail(region, below)
    always = bool(region.steps) and region.condition is None
    region.accumulates = not (always and (zero_above or region.zeroed))
    if region.accumulates and zero_above:
        raise LoopError(statements[at], "zero_grad() before each backward(), but not a step after each", "")
    return region


def _read_tail(region: Region, below: list[ast.stmt]) -> None:
    for statement in below:
        if _read_part(region, statement, region.after):
            continue
        if not isinstance(statement, ast.If):
            raise LoopError(
                statement, "a part of the training step inside another statement", "write it in the loop's body"
            )
        _read_conditional(region, statement)


def _read_part(region: Region, statement: ast.stmt, others: list[ast.stmt]) -> bool:
    """Take a statement as one part of the step, or put it with `others`; False where parts stand inside it."""
    kind = kind_of(statement)
    if kind in (CLIP, STEP):
        region.tail.append(statement)
    elif kind == ZERO:
        region.zeroed = True
    elif kind == SCALER:
        pass
    elif _is_conditional_clip(statement):
        _read_clip(region, statement)
    elif DEVICE & set(parts(statement)):
        return False
    else:
        others.append(statement)
    return True


def _is_conditional_clip(statement: ast.stmt) -> bool:
    """Whether a statement is an `if` in which gradients are clipped and nothing else is done with them."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    kinds_ = [kind_of(s) for s in flattened(statement.body)]
    return bool(kinds_) and CLIP in kinds_ and set(kinds_) <= {CLIP, SCALER}


def _read_clip(region: Region, statement: ast.If) -> None:
    for inner in flattened(statement.body):
        if kind_of(inner) == CLIP:
            region.tail.append(inner)
            region.conditions[id(inner)] = statement.test


def _read_conditional(region: Region, statement: ast.If) -> None:
    if statement.orelse or region.condition is not None or region.tail:
        raise LoopError(statement, "an optimizer step under more than one condition", "use one `if` without `else`")
    region.condition = statement.test
    for inner in flattened(statement.body):
        if not _read_part(region, inner, region.conditional):
            raise LoopError(inner, "a part of the training step inside another statement", "")


@dataclass(frozen=True)
class Input:
    """A variable that a step is given: its key in the source, the parameter's name, and how it is passed."""

    key: str
    name: str
    how: str
    line: int  # of the statement that reads it first
    recorded: bool = True  # whether it is data, which a check can replace by PyTorch's


def inputs_of(context: Context, nodes: list[ast.AST], model: str | None, taken: set[str]) -> list[Input]:
    """What statements read and do not bind, each with a parameter of its own; model and optimizer aside."""
    found: list[Input] = []
    bound: set[str] = set()
    wanted: dict[str, tuple[ast.expr, int]] = {}
    for node in nodes:
        for key, expression in reads([node]).items():
            if key not in bound:
                wanted.setdefault(key, (expression, getattr(node, "lineno", 0)))
        bound |= binds([node])
    for key, (expression, line) in wanted.items():
        if key == model or _is_global(context, key, expression):
            continue
        name = key.rpartition(".")[2]
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(Input(key, name, how_passed(expression), line, "module" not in kinds(expression)))
    return found


def _is_global(context: Context, key: str, expression: ast.expr) -> bool:
    """Whether a name is a builtin, an import or a definition rather than a variable."""
    file = getattr(expression, "file", None)
    if "." in key or file is None:
        return file is None and "." not in key
    import builtins

    if kinds(expression) and not kinds(expression) & {"callable", "class", "unknown"}:
        return False  # a variable, whatever else in the file has its name
    if key in file.imports or (hasattr(builtins, key) and not kinds(expression)):
        return True
    outline = file.outline.get(key)
    return isinstance(outline, ast.FunctionDef | ast.ClassDef) or (
        hasattr(builtins, key) and "builtins" in str(seen(expression))
    )


def how_passed(expression: ast.expr) -> str:
    """How a step is given a variable: arrays and numbers that change are arguments, the rest is compiled in."""
    found = kinds(expression)
    if found & {"tensor", "param", "dict", "record"}:
        return TRACED
    if found & {"tuple", "list"}:
        return TRACED if set(seen(expression).get("elements", ())) & {"tensor", "param"} else STATIC
    if found == {"float"}:
        return TRACED
    if found == {"int"}:
        return TRACED if len(seen(expression).get("literals", ())) > 1 else STATIC
    if found == {"module"}:
        names = seen(expression).get("names", ())
        return STATIC if all(".loss." in n for n in names) else TRACED
    return STATIC


def model_key(nodes: list[ast.AST], entry: str) -> str:
    """The variable that holds the model which statements call.

    Raises:
      LoopError: none does, or several do.
    """
    found: dict[str, ast.AST] = {}
    for node in nodes:
        for child in ast.walk(node):
            if f"module:{entry}" in seen(child).get("names", ()) and (key := key_of(child)):
                found.setdefault(key, child)
    if len(found) != 1:
        reason = f"the step calls {sorted(found) or 'no model'}, expected the one that is trained"
        raise LoopError(nodes[0] if nodes else ast.Pass(), reason, "train one model in a loop")
    return next(iter(found))


def optimizer_key(region: Region) -> str | None:
    """The variable that holds the optimizer.

    Raises:
      LoopError: several optimizers take a step.
    """
    keys = {key_of(optimizer_of(c)) or ast.unparse(optimizer_of(c)): c for c in region.steps}
    if len(keys) > 1:
        raise LoopError(list(keys.values())[1], f"several optimizers take a step ({', '.join(sorted(keys))})", "")
    return next(iter(keys), None)
