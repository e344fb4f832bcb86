"""What the statements of a training loop do, by what the instrumented run saw them call."""

import ast
from collections.abc import Iterator

from maxcode.converter import plumbing as tables
from maxcode.converter.context import callees, kinds, seen

BACKWARD, ZERO, STEP, CLIP, SCHEDULE, SCALER, AVERAGE = (
    "backward", "zero_grad", "step", "clip", "schedule", "scaler", "average",
)  # fmt: skip
DEVICE = frozenset({BACKWARD, ZERO, STEP, CLIP})  # what a compiled step does
_CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")


class LoopError(Exception):
    """A loop that is not understood: the node where, and the reason."""

    def __init__(self, node: ast.AST, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.node, self.reason, self.hint = node, reason, hint


def kind_of(statement: ast.stmt) -> str | None:
    """The part that a simple statement has in a training step, None for any other."""
    value = getattr(statement, "value", None)
    return kind_of_call(value) if isinstance(value, ast.Call) else None


def kind_of_call(node: ast.Call) -> str | None:
    """The part that a call has in a training step."""
    function = tables.last(ast.unparse(node.func))
    names = callees(node) or _by_spelling(node)
    for qualified in names:
        short, owner = tables.last(qualified), qualified.rpartition(".")[0]
        if qualified == "torch.Tensor.backward":
            return BACKWARD
        if short in _CLIPS or function in _CLIPS:
            return CLIP
        if "lr_scheduler" in owner or owner.startswith("transformers.optimization"):
            return SCHEDULE if short == "step" else None
        if "grad_scaler" in owner:
            return {"step": STEP, "update": SCALER, "unscale_": SCALER}.get(short)
        if "swa_utils" in owner:
            return AVERAGE if short == "update_parameters" else None
        if short == "zero_grad" and owner.startswith("torch."):
            return ZERO
        if short == "step" and owner.startswith("torch.optim."):
            return STEP
    return None


def _by_spelling(node: ast.Call) -> tuple[str, ...]:
    """Names for calls that no run came to, where their spelling leaves no doubt."""
    if isinstance(node.func, ast.Attribute) and not seen(node):
        if node.func.attr == "backward" and not node.args:
            return ("torch.Tensor.backward",)
        if node.func.attr == "zero_grad":
            return ("torch.optim.optimizer.Optimizer.zero_grad",)
    return ()


def parts(statement: ast.stmt) -> Iterator[str]:
    """The parts of every call at or below a statement."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and (part := kind_of_call(node)):
            yield part


def loss_of(statement: ast.stmt) -> ast.expr:
    """The expression that a `backward` statement differentiates, without a gradient scaler around it."""
    call = statement.value
    value = call.func.value
    if isinstance(value, ast.Call) and any("grad_scaler" in c for c in callees(value)):
        return value.args[0]
    return value


def scales(statement: ast.stmt) -> bool:
    """Whether a gradient scaler has a part in a statement."""
    return any("grad_scaler" in c for n in ast.walk(statement) if isinstance(n, ast.Call) for c in callees(n))


def optimizer_of(node: ast.Call) -> ast.expr:
    """The optimizer whose `step` a call takes, also through a scaler."""
    if any("grad_scaler" in c for c in callees(node)):
        return node.args[0]
    return node.func.value


def flattened(block: list[ast.stmt]) -> list[ast.stmt]:
    """A block with the statements of `with` blocks that only steer the runtime taken out of them."""
    found: list[ast.stmt] = []
    for statement in block:
        if isinstance(statement, ast.With) and all(_is_steering(i.context_expr) for i in statement.items):
            found += flattened(statement.body)
        else:
            found.append(statement)
    return found


def _is_steering(context: ast.expr) -> bool:
    if isinstance(context, ast.Call):
        short = tables.last(ast.unparse(context.func))
        named = any(c.startswith(("torch.amp.", "torch.autocast", "contextlib.nullcontext")) for c in callees(context))
        return named or short in ("autocast", "record_function", "no_sync", "nullcontext", "profile")
    # `ctx = torch.autocast(...)` before the loop, `with ctx:` within
    return kinds(context) == {"unknown"} and isinstance(context, ast.Name | ast.Attribute)
