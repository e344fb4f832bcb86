"""Write a training step: the function that computes the loss, the jitted step around it, and the call of both."""

import ast
import copy
from dataclasses import dataclass
from typing import Any

from maxcode.converter.context import Context, copy_facts, path_of
from maxcode.converter.nodes import name
from maxcode.converter.training.regions import STATIC, TRACED, Input, Region, inputs_of, model_key
from maxcode.converter.training.statements import LoopError
from maxcode.converter.training.variables import binds, key_of, reads

_OWN = (  # names of a step's own
    "model", "graph", "optimizer", "state", "hyperparameters", "gradients", "update", "loss", "outputs", "rest",
    "params",
)  # fmt: skip
SCALED = "scaled_loss"  # what is differentiated, where it has no name of its own
_CLIP_ARGUMENTS = {
    "clip_grad_norm": ("parameters", "max_norm", "norm_type", "error_if_nonfinite", "foreach"),
    "clip_grad_value": ("parameters", "clip_value", "foreach"),
}


@dataclass
class Step:
    """What a region becomes.

    Args:
      loss_function: computes the loss and what the host reads, from the source's own statements; torch's still.
      step_function: JAX already.
      call: statements that stand in the loop in the region's place.
      model, optimizer: their variables in the source.
      used: support functions, as (module, name).
    """

    loss_function: ast.FunctionDef
    step_function: ast.FunctionDef
    call: list[ast.stmt]
    model: str
    optimizer: str
    accumulates: bool
    used: tuple[tuple[str, str], ...]
    inputs: tuple[Input, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What a check has to know: the step's name, where it stands in the source, and what it is given."""
        given = [{"name": i.name, "key": i.key, "line": i.line} for i in self.inputs]
        file, line = path_of(self.loss_function), self.loss_function.lineno
        return {"function": self.step_function.name, "file": file, "line": line, "inputs": given}


class Rename(ast.NodeTransformer):
    """Variables of the host become parameters of a function."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def _replace(self, node: ast.Name | ast.Attribute) -> ast.expr:
        key = key_of(node)
        if key in self.names and (isinstance(node, ast.Attribute) or self.names[key] != node.id):
            return copy_facts(ast.Name(self.names[key], node.ctx), node)
        return self.generic_visit(node)

    visit_Name = visit_Attribute = _replace


@dataclass
class Draft:
    """A region with what was decided about it: names of its two functions, inputs, outputs, and renamed variables."""

    region: Region
    names: tuple[str, str]
    given: list[Input]
    outputs: list[str]
    clips: list["Clip"]
    rename: dict[str, str]
    loss: str
    read: frozenset[str]

    def passed(self, how: str) -> list[Input]:
        """Inputs that are passed in one way."""
        return [i for i in self.given if i.how == how]

    def flags(self) -> dict[str, ast.expr]:
        """Conditions that the host decides before each step, by the parameter that says so."""
        found = {"update": self.region.condition} if self.region.condition is not None else {}
        conditions = [c.condition for c in self.clips if c.condition is not None]
        return found | ({"clip": conditions[0]} if conditions else {})

    def unread(self, given: Input) -> bool:
        """Whether an input is an argument of clipping alone, which the loss does not read."""
        return given.key not in self.read


def write_step(
    context: Context,
    region: Region,
    optimizer: str,
    names: tuple[str, str],
    read_later: set[str],
    state: tuple[str, str],
) -> Step:
    """The step of a region.

    Args:
      optimizer: its variable in the source; a region without a step of its own belongs to that of another block.
      names: of the loss function and of the step.
      read_later: variables that the host reads outside the region's device statements.
      state: names of the graph and of the training state in the host's function.

    Raises:
      LoopError: what the step does is not understood.
    """
    device = region.slice.device
    model = model_key([*device, region.loss], context.entry)
    clips = [_clip(call, condition, model) for call, condition in region.clips]
    taken = set(_OWN)
    taken |= {"clip"} if any(c.condition is not None for c in clips) else set()
    given = inputs_of(context, [*device, region.loss, *(v for c in clips for v in c.values)], model, taken)
    if any(i.key == optimizer for i in given):
        raise LoopError(region.statement, "the loss reads the optimizer")
    rename = {i.key: i.name for i in given} | {model: "model"}
    bound, read = binds(list(device)), frozenset(reads([*device, region.loss]))
    outputs = [key for key in sorted(bound) if key in read_later and key != key_of(region.loss)]
    draft = Draft(region, names, given, outputs, clips, rename, _loss_name(region, rename), read)
    function = _loss_function(draft)
    function.file = getattr(region.statement, "file", None)
    used = [("train_state", "rest_of"), ("random", "key_scope"), *(("gradients", c.function) for c in clips)]
    call = _call(draft, optimizer, state)
    read_inputs = tuple(i for i in draft.passed(TRACED) if i.recorded and not draft.unread(i))
    step = _step_function(draft)
    return Step(function, step, call, model, optimizer, region.accumulates, tuple(used), read_inputs)


@dataclass
class Clip:
    function: str
    values: list[ast.expr]  # expressions of its arguments
    keywords: list[str]
    condition: ast.expr | None = None


def _clip(node: ast.Call, condition: ast.expr | None, model: str) -> Clip:
    function = ast.unparse(node.func).rpartition(".")[2].rstrip("_")
    order = _CLIP_ARGUMENTS[function]
    named = dict(zip(order, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
    owner = named.pop("parameters", None)
    if not (
        isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and key_of(owner.func.value) == model
    ):
        reason = "gradients of other parameters than model.parameters() are clipped"
        raise LoopError(node, reason, "clip the gradients of the whole model")
    named.pop("foreach", None)
    flag = named.pop("error_if_nonfinite", None)
    if flag is not None and not (isinstance(flag, ast.Constant) and flag.value is False):
        raise LoopError(
            node, "error_if_nonfinite cannot raise inside a compiled step", "test the norm that is returned"
        )
    return Clip(function, list(named.values()), list(named), condition)


def _loss_name(region: Region, rename: dict[str, str]) -> str:
    key = key_of(region.loss)
    return rename.get(key, key.rpartition(".")[2]) if key else SCALED


def _loss_function(draft: Draft) -> ast.FunctionDef:
    region, outputs = draft.region, draft.outputs
    local = draft.rename | {k: _local(k) for k in outputs if "." in k}
    if key := key_of(region.loss):
        local[key] = draft.loss
    renamed = Rename(local)
    body = [renamed.visit(statement) for statement in region.slice.device]
    loss = renamed.visit(region.loss)
    more = ast.Tuple([name(_local(k)) for k in outputs], ast.Load())
    body.append(ast.Return(ast.Tuple([loss, more], ast.Load()) if outputs else loss))
    arguments = ["model", *(i.name for i in draft.given if not draft.unread(i))]
    doc = f"Loss of one batch{' and ' + ', '.join(map(_local, outputs)) if outputs else ''}; {place(region.statement)}."
    made = ast.FunctionDef(
        draft.names[0], ast.arguments([], [ast.arg(a) for a in arguments], None, [], [], None, []),
        [ast.Expr(ast.Constant(doc)), *body], [], None, type_params=[],
    )  # fmt: skip
    made.spaced = True
    return ast.copy_location(made, region.statement)


def place(node: ast.AST) -> str:
    """File and line of the source."""
    return f"{path_of(node).rpartition('/')[2]}:{getattr(node, 'lineno', 0)}"


def _local(key: str) -> str:
    return key.rpartition(".")[2]


def _step_function(draft: Draft) -> ast.FunctionDef:
    region = draft.region
    statics, traced = [[i.name for i in draft.passed(how)] for how in (STATIC, TRACED)]
    steps, update = bool(region.steps), list(draft.flags())
    frozen = ("graph", *["optimizer"] * steps, *statics, *update)
    arguments = ["graph", *["optimizer"] * steps, *statics, "state", *["hyperparameters"] * steps, *traced, *update]
    extra, starred = (", outputs", ", *outputs") if draft.outputs else ("", "")
    passed = "".join(f", {i.name}" for i in draft.given if not draft.unread(i))
    held = "(rest_of(model), outputs)" if draft.outputs else "rest_of(model)"
    back = "(rest, outputs)" if draft.outputs else "rest"
    lines = [
        f"@partial(jax.jit, static_argnames={frozen!r}, donate_argnames='state')",
        f"def {draft.names[1]}({', '.join(arguments)}):",
        f'    """One training step on donated state: {_what(region)}; {place(region.statement)}."""',
        "    def loss_of(params):",
        "        model = nnx.merge(graph, params, state.rest, copy=True)",
        "        with key_scope(state.keyed()):",
        f"            loss{extra} = {draft.names[0]}(model{passed})",
        f"        return loss, {held}",
        f"    (loss, {back}), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)",
        "    state = state.replace(rest=rest, step=state.step + 1)",
        *_updates(draft),
        f"    return state, loss{starred}",
    ]
    function = ast.parse("\n".join(lines)).body[0]
    function.body[1].spaced = function.spaced = True
    return function


def _what(region: Region) -> str:
    parts = ["loss", "gradients", *["clipping"] * bool(region.clips), *["update"] * bool(region.steps)]
    return ", ".join(parts)


def _updates(draft: Draft) -> list[str]:
    region, lines, pad = draft.region, [], "    "
    if region.accumulates:
        lines.append("    state = state.accumulated(gradients)")
    if not region.steps:
        return lines
    if region.condition is not None:
        lines.append("    if update:")
        pad = "        "
    holder = "state.gradients" if region.accumulates else "gradients"
    for clip in draft.clips:
        values = [ast.unparse(Rename(draft.rename).visit(copy.deepcopy(v))) for v in clip.values]
        arguments = [f"{k}={v}" for k, v in zip(clip.keywords, values, strict=True)]
        if clip.condition is not None:
            lines += [f"{pad}gradients = {holder}"] * (holder != "gradients") + [f"{pad}if clip:"]
            holder = "gradients"
        inner = pad + "    " * (clip.condition is not None)
        lines.append(f"{inner}gradients, _ = {clip.function}({', '.join([holder, *arguments])})")
        holder = "gradients"
    flag = ", if_finite=True" if region.if_finite else ""
    lines.append(f"{pad}state = state.updated(optimizer, {holder}, hyperparameters{flag})")
    if region.accumulates and region.zeroed:
        lines.append(f"{pad}state = state.zeroed()")
    return lines


def _call(draft: Draft, optimizer: str, state: tuple[str, str]) -> list[ast.stmt]:
    """The statements that stand in the loop in the region's place."""
    region, (graph, holder) = draft.region, state
    statics, traced = [[i.key for i in draft.passed(how)] for how in (STATIC, TRACED)]
    first, numbers = ([optimizer], [f"{optimizer}.hyperparameters()"]) if region.steps else ([], [])
    arguments = [graph, *first, *statics, holder, *numbers, *traced]
    update: list[ast.stmt] = []
    for flag, condition in draft.flags().items():
        arguments.append(flag)
        value = ast.Call(ast.Name("bool", ast.Load()), [condition], [])
        update.append(ast.Assign([ast.Name(flag, ast.Store())], value, lineno=0))
    targets = ", ".join([holder, key_of(region.loss) or SCALED, *draft.outputs])
    made = ast.parse(f"{targets} = {draft.names[1]}({', '.join(arguments)})").body
    after = list(region.slice.after)
    if region.conditional:
        after.append(ast.If(name("update"), region.conditional, []))
    return [*region.slice.before, *update, *made, *after, *region.after]
