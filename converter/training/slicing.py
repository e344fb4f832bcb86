"""Which statements of a training loop's body compute the loss, and which belong to the host."""

import ast
from dataclasses import dataclass, field

from maxcode.converter.context import callees, kinds, seen
from maxcode.converter.training.statements import CLIP, SCALER, STEP, ZERO, LoopError, kind_of
from maxcode.converter.training.variables import binds, reads

_DRAWS = frozenset({
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
    "multinomial", "normal_", "uniform_", "random_", "exponential_", "bernoulli_",
})  # fmt: skip


@dataclass
class Slice:
    """A block of statements above its `backward`, taken apart.

    Args:
      before: statements of the host that the loss needs, or that come first anyway.
      device: statements that compute the loss, in order.
      after: statements of the host that read what the device computed.
    """

    before: list[ast.stmt] = field(default_factory=list)
    device: list[ast.stmt] = field(default_factory=list)
    after: list[ast.stmt] = field(default_factory=list)


def slice_loss(block: list[ast.stmt], loss: ast.expr) -> Slice:
    """Take the statements above `backward` apart by what `loss` needs of them."""
    needed = _needed(block, set(reads([loss])))
    hosted = _hosted([s for s in block if id(s) in needed])
    found = Slice()
    computed: set[str] = set()
    for statement in block:
        kind = kind_of(statement)
        if kind in (ZERO, SCALER):
            continue
        if kind in (CLIP, STEP):
            raise LoopError(statement, "an optimizer's step before backward() in the loop's body")
        if id(statement) in needed and id(statement) not in hosted:
            found.device.append(statement)
            computed |= binds([statement])
        elif set(reads([statement])) & computed:
            found.after.append(statement)
        else:
            found.before.append(statement)
            computed -= binds([statement])
    return found


def _needed(block: list[ast.stmt], wanted: set[str]) -> set[int]:
    """Statements that the wanted variables depend on, by identity."""
    found: set[int] = set()
    for statement in reversed(block):
        if binds([statement]) & wanted and kind_of(statement) is None:
            found.add(id(statement))
            wanted |= set(reads([statement]))
    return found


def _hosted(needed: list[ast.stmt]) -> set[int]:
    """Of those, statements that fetch or draw data, or make host values, with all that they depend on."""
    found = {id(s) for s in needed if _is_host(s)}
    wanted: set[str] = set()
    for statement in reversed(needed):
        if id(statement) in found or binds([statement]) & wanted:
            found.add(id(statement))
            wanted = (wanted - binds([statement])) | set(reads([statement]))
    return found


def _is_host(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.value is not None:
        found = kinds(statement.value)
        if found and found <= {"int", "float", "bool", "str", "none", "device"}:
            return True
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
    return any(_fetches(node) for node in calls)


def _fetches(node: ast.Call) -> bool:
    """Whether a call brings data in: from an iterator, from a function of the program that is given no model or tensor,
    or from a random number generator."""
    names = callees(node)
    if any(n.startswith("torch.") and n.rpartition(".")[2] in _DRAWS for n in names):
        return True
    if any(n.startswith(("torch.", "module:", "transformers.")) for n in names):
        return False
    if any(n.startswith("builtins.") for n in names):
        return names[0].rpartition(".")[2] in ("next", "input", "open", "iter")
    if not names:
        return False
    given = [*node.args, *(k.value for k in node.keywords)]
    if isinstance(node.func, ast.Attribute) and _carries(node.func.value):
        return False
    return not any(_carries(value) for value in given)


def _carries(value: ast.expr) -> bool:
    """Whether a value is or holds a tensor or a module."""
    held = kinds(value) | set(seen(value).get("elements", ()))
    return bool(held & {"tensor", "param", "module", "dict", "record"})
