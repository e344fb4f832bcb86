"""The host's part of a training program: torch's objects become those of the support library, devices go."""

import ast
from typing import Any

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.config_class import module_parameters
from maxcode.converter.context import Context, Definition, callees, copy_facts, kinds, seen
from maxcode.converter.layer_values import apply_layer
from maxcode.converter.library import defines
from maxcode.converter.nodes import attribute, call, dotted, dress, name, typed
from maxcode.converter.passes.plumbing import Plumbing
from maxcode.converter.rule import NoRule

_OPTIMIZERS, _SCHEDULERS, _DATA = "torch.optim.", "torch.optim.lr_scheduler.", "torch.utils.data."
_OTHER_BACKENDS = ("foreach", "fused", "capturable", "differentiable")  # how torch runs a step, not what it computes
_LOADING = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor", "pin_memory_device", "timeout")
_SCHEDULER_MODULES = ("lr_schedulers", "cyclic_schedulers", "combined_schedulers", "averaging")
_OPTIMIZER_MODULES = ("optim", "optim_more")
_OBJECTS = ("torch.optim.", "torch.utils.data.")
_MODEL_STATE = ("torch.nn.modules.module.Module.state_dict", "torch.nn.modules.module.Module.load_state_dict")
_METHODS = (
    "step",
    "zero_grad",
    "get_last_lr",
    "get_lr",
    "add_param_group",
    "__init__",
    "update_parameters",
    "state_dict",
)
_SEEDS = ("torch.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "torch.mps.manual_seed")
_STEERING = ("torch.backends.", "torch.cuda.", "torch.set_num_threads", "torch.set_float32_matmul_precision")


class HostPlumbing(Plumbing):
    """Takes devices out and leaves what a host does otherwise: printing, freezing, deleting."""

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Keep calls that mean something here."""
        if isinstance(node.value, ast.Call):
            names = callees(node.value)
            if any(n in _SEEDS or n.startswith(_STEERING) for n in names) or ast.unparse(node.value.func) in _SEEDS:
                return None
            if self._is_initialisation(node.value):
                return None
        return self.generic_visit(node)

    def _is_initialisation(self, node: ast.Call) -> bool:
        text = ast.unparse(node.func)
        return text.startswith(("nn.init.", "init.", "torch.nn.init.")) or text.endswith(".apply")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """How a tensor is moved says nothing here."""
        node.keywords = [k for k in node.keywords if k.arg != "non_blocking"]
        return super().visit_Call(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Drop assignments of devices only; `x = x.to(device)` becomes nothing."""
        target = node.targets[0]
        if isinstance(target, ast.Name) and kinds(node.value) == {"device"}:
            self.constants[-1][target.id] = ast.Constant(None)
            return None
        if isinstance(target, ast.Attribute) and (kinds(node.value) == {"device"} or _is_backend_switch(target)):
            return None
        self.generic_visit(node)
        if ast.unparse(node.value) == ast.unparse(target):
            return None
        if isinstance(target, ast.Tuple) and ast.unparse(node.value) == ast.unparse(target):
            return None
        return node

    def visit_Delete(self, node: ast.Delete) -> Any:
        """Deleting is Python's own."""
        return node

    def visit_With(self, node: ast.With) -> Any:
        """Blocks without gradients are blocks; the others are looked at where steps are found."""
        self.generic_visit(node)
        names = [
            tables.last(ast.unparse(i.context_expr.func)) for i in node.items if isinstance(i.context_expr, ast.Call)
        ]
        if len(names) == len(node.items) and all(n in ("no_grad", "inference_mode", "set_grad_enabled") for n in names):
            return node.body
        return node


def _is_backend_switch(target: ast.Attribute) -> bool:
    return ast.unparse(target).startswith("torch.backends.")


class Host(ast.NodeTransformer):
    """Rewrites one definition of the host; gaps are recorded where torch has something that has no counterpart."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef) -> None:
        registry.load()
        self.context, self.definition, self.function = context, definition, function

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace a call of torch that makes or asks an object of training."""
        for qualified in callees(node):
            made = self._call(node, qualified)
            if made is not None:
                return made
        if not seen(node) and (made := self._spelled(node)) is not None:
            return made
        self.generic_visit(node)
        if any(n.startswith(_OBJECTS) for n in callees(node)):
            return self._method(node, callees(node)[0])
        return node

    def _spelled(self, node: ast.Call) -> ast.expr | None:
        """Methods of tensors inside f-strings, which no run is recorded of."""
        if not isinstance(node.func, ast.Attribute):
            return None
        attr, owner = node.func.attr, node.func.value
        if attr in ("detach", "cpu") and not node.args:
            return self.visit(owner)
        if attr == "size" and len(node.args) == 1:
            return ast.Subscript(attribute(self.visit(owner), "shape"), node.args[0], ast.Load())
        return None

    def _method(self, node: ast.Call, qualified: str) -> ast.expr:
        """A method of an optimizer, scheduler or loader."""
        short = tables.last(qualified)
        is_step = short == "step" and "lr_scheduler" not in qualified
        if short not in _METHODS or is_step:
            reason = "takes a step that no training loop was recognised around" if is_step else "has no counterpart"
            self.context.gap("CV120", node, qualified, reason, "write zero_grad, forward, backward, step in one block")
        return typed(node, node)

    def _call(self, node: ast.Call, qualified: str) -> ast.expr | None:
        short = tables.last(qualified)
        if qualified.startswith(_SCHEDULERS) and isinstance(_class_of(node), str) and _is_class(short):
            return self._object(node, _home(short, _SCHEDULER_MODULES), short, ("verbose",))
        if qualified.startswith("transformers.optimization.get_"):
            return self._object(node, "warmup_schedules", short, ())
        if qualified.startswith("torch.optim.swa_utils.") and defines("averaging", short):
            return self._object(node, "averaging", short, ("device",))
        if qualified.startswith(_OPTIMIZERS) and _is_class(short) and "lr_scheduler" not in qualified:
            return self._object(node, _home(short, _OPTIMIZER_MODULES), short, _OTHER_BACKENDS)
        if qualified.startswith(_DATA) and (_is_class(short) or short == "random_split"):
            return self._object(node, "loader", short, (*_LOADING, "generator"))
        if qualified == "torch.nn.modules.module.Module.parameters":
            return self._of_module(node, "parameters")
        if qualified == "torch.nn.modules.module.Module.named_parameters":
            return self._of_module(node, "named_parameters")
        if qualified == self.context.entry:
            return self._model(node)
        if qualified == f"module:{self.context.entry}":
            self.generic_visit(node)
            return typed(
                ast.Call(self.context.use("evaluation", "eval_step"), [node.func, *node.args], node.keywords), node
            )
        if registry.canonical(qualified) in registry.MODULES and _is_class(short):
            return self._layer(node, registry.canonical(qualified))
        return self._value(node, qualified)

    def _object(self, node: ast.Call, home: str, short: str, dropped: tuple[str, ...]) -> ast.expr:
        self.generic_visit(node)
        if not defines(home, short):
            reason = "the support library has no such object"
            self.context.gap("CV121", node, f"torch {short}", reason, "use another, or write the step by hand")
            return node
        node.keywords = [k for k in node.keywords if k.arg not in dropped]
        chosen = self.context.facts["training"].get("last_batch", "keep")
        if short == "DataLoader" and chosen != "keep" and _shuffles(node):
            node.keywords.append(ast.keyword("last_batch", ast.Constant(chosen)))
            self.context.assume(node, f"a smaller last batch: {chosen} (--last-batch), where the source keeps it")
        return typed(ast.Call(self.context.use(home, short), node.args, node.keywords), node)

    def _of_module(self, node: ast.Call, function: str) -> ast.expr:
        owner = self.visit(node.func.value)
        return typed(call(self.context.use("parameters", function), owner), node)

    def _model(self, node: ast.Call) -> ast.expr:
        """`Net(16, 32)` is `Net.from_config(NetConfig(dim=16, hidden=32), rngs=nnx.Rngs(0)).train()`."""
        self.generic_visit(node)
        entry = tables.last(self.context.entry)
        names = [row["name"] for row in self.context.facts.get("constructor", ())]
        fields = {field for field, *_ in module_parameters(self.context.facts)}
        keywords = [ast.keyword(n, a) for n, a in zip(names, node.args, strict=False)] + node.keywords
        for keyword in keywords:
            if keyword.arg not in fields:
                reason = f"its constructor's argument {keyword.arg!r} is no field of the configuration"
                self.context.gap("CV122", node, entry, reason, "")
        config = ast.Call(name(f"{entry}Config"), [], keywords)
        self.context.external[f"config:{entry}"] = f"from .config import {entry}Config"
        self.context.imports.add("from flax import nnx")
        made = call(attribute(entry, "from_config"), config, rngs=dotted("nnx.Rngs(0)"))
        made = call(attribute(made, "train"))  # torch builds models in training mode
        if unused := self.context.facts["training"].get("unused"):
            names = ast.Tuple([ast.Constant(n) for n in unused], ast.Load())
            made = call(self.context.use("parameters", "without_gradients"), made, names)
            text = f"{', '.join(unused[:6])}: no step seen gave them a gradient, so steps leave them as they are"
            self.context.assume(node, text)
        return typed(made, node)

    def _layer(self, node: ast.Call, canonical: str) -> ast.expr | None:
        self.generic_visit(node)
        try:
            applied = apply_layer(canonical, node, self.function)
        except NoRule as error:
            self.context.gap("CV122", node, canonical, f"is made outside a model: {error}", "")
            return node
        self.context.imports |= {i for i in applied.imports if i.startswith(("import ", "from "))}
        self.context.helpers |= applied.helpers
        return typed(applied.expr, node)

    def _value(self, node: ast.Call, qualified: str) -> ast.expr | None:
        """Values that leave the device."""
        short = tables.last(qualified)
        if qualified.startswith("torch.Tensor.") and isinstance(node.func, ast.Attribute):
            if short == "item":
                kind = next(iter(kinds(node)), "float")
                value = self.visit(node.func.value)
                return typed(call(kind if kind in ("int", "bool") else "float", value), node)
            if short == "clone":  # what belongs to the model is given away when training goes on
                self.context.imports.add("import jax.numpy as jnp")
                inner = self.visit(node.func.value)
                inner = attribute(inner, "value") if kinds(node.func.value) == {"param"} else inner
                return typed(call("jnp.copy", inner), node)
            if short in ("cpu", "detach", "cuda", "contiguous"):
                inner = self.visit(node.func.value)
                return typed(attribute(inner, "value"), node) if kinds(node.func.value) == {"param"} else inner
            if short == "requires_grad_" and kinds(node.func.value) == {"param"}:
                return typed(ast.Call(attribute(self.visit(node.func.value), short), node.args, node.keywords), node)
            if short == "numpy":
                self.context.imports.add("import numpy as np")
                return typed(call("np.asarray", self.visit(node.func.value)), node)
        return self._function(node, qualified)

    def _function(self, node: ast.Call, qualified: str) -> ast.expr | None:
        """Functions and objects around training that torch and Python have."""
        short = tables.last(qualified)
        if short == "deepcopy" and node.args and kinds(node.args[0]) == {"module"}:
            self.context.imports.add("from flax import nnx")
            return typed(call("nnx.clone", self.visit(node.args[0])), node)
        if qualified in _MODEL_STATE:
            return self._state(node, qualified)
        if qualified in ("torch.serialization.save", "torch.serialization.load"):
            arguments = [self.visit(a) for a in node.args[: 2 if short == "save" else 1]]
            return typed(call(self.context.use("checkpoint", short), *arguments), node)
        if short == "GradScaler" or "swa_utils.AveragedModel.__init__" in qualified:
            return copy_facts(ast.Constant(None), node)
        if short in ("Generator",) or "Generator.manual_seed" in qualified:
            return copy_facts(ast.Constant(None), node)
        if qualified == "torch.from_numpy":
            self.context.imports.add("import jax.numpy as jnp")
            return typed(call("jnp.asarray", *[self.visit(a) for a in node.args]), node)
        return None

    def _state(self, node: ast.Call, qualified: str) -> ast.expr:
        """`model.state_dict()` and `model.load_state_dict(state)`."""
        owner = self.visit(node.func.value)
        arguments = [self.visit(a) for a in node.args]
        function = self.context.use("checkpoint", tables.last(qualified))
        keywords = [k for k in node.keywords if k.arg == "strict"]
        return typed(ast.Call(function, [owner, *arguments], keywords), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Writes into parameters (`p.data.mul_(d).add_(q)`, `p.copy_(q)`) assign their arrays."""
        chain = _written_parameter(node.value)
        if chain is None:
            return self.generic_visit(node)
        target, value = chain
        made = ast.Assign([ast.Attribute(self.visit(target), "value", ast.Store())], self.visit(value))
        return dress(made, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """`p.data` is the array of a parameter; of anything else it is that thing."""
        self.generic_visit(node)
        if node.attr == "data" and kinds(node.value) == {"tensor"} and isinstance(node.ctx, ast.Load):
            return node.value
        if node.attr == "data" and kinds(node.value) == {"param"}:
            node.attr = "value"
        return node


def _written_parameter(value: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The parameter that a chain of in-place methods writes, and the chain without the writing."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    name = value.func.attr
    owner = value.func.value
    if not name.endswith("_") or name.endswith("__") or not any(c.startswith("torch.Tensor.") for c in callees(value)):
        return None
    inner = _written_parameter(owner)
    target, before = inner if inner is not None else (_parameter(owner), None)
    if target is None:
        return None
    before = before if before is not None else _array(target, owner)
    if name == "copy_":
        return target, value.args[0]
    made = ast.Call(ast.Attribute(before, name[:-1], ast.Load()), value.args, value.keywords)
    made.seen = {"kinds": ["tensor"], "callee": [f"torch.Tensor.{name[:-1]}"]}
    return target, ast.copy_location(made, value)


def _parameter(node: ast.expr) -> ast.expr | None:
    """The expression of a parameter, for itself or its `.data`."""
    if kinds(node) == {"param"}:
        return node
    if isinstance(node, ast.Attribute) and node.attr == "data" and kinds(node.value) == {"param"}:
        return node.value
    return None


def _array(target: ast.expr, like: ast.expr) -> ast.expr:
    made = ast.Attribute(target, "value", ast.Load())
    made.seen = {**seen(like), "kinds": ["tensor"]}
    return ast.copy_location(made, like)


def rebase(context: Context, definition: Definition) -> None:
    """Give a class of the program the support library's base in place of torch's (`Dataset`, `LRScheduler`)."""
    if not isinstance(definition.node, ast.ClassDef):
        return
    for number, base in enumerate(definition.node.bases):
        qualified = definition.qualified_base(base)
        short = tables.last(qualified)
        module = next(
            (m for m in ("loader", "lr_schedulers") if qualified.startswith("torch.") and defines(m, short)), None
        )
        if module is not None:
            definition.node.bases[number] = context.use(module, short)


def _class_of(node: ast.Call) -> str:
    return ast.unparse(node.func)


def _shuffles(node: ast.Call) -> bool:
    """Whether a loader is one for training: it shuffles, and does not drop its last batch itself."""
    given = {k.arg: k.value for k in node.keywords}
    own = given.get("drop_last")
    drops = own is not None and not (isinstance(own, ast.Constant) and own.value is False)
    value = given.get("shuffle", node.args[2] if len(node.args) > 2 else None)
    return value is not None and not (isinstance(value, ast.Constant) and value.value is False) and not drops


def _is_class(short: str) -> bool:
    return short[:1].isupper()


def _home(short: str, modules: tuple[str, ...]) -> str:
    """The support module of an optimizer or scheduler."""
    return next((m for m in modules if defines(m, short)), modules[0])


__all__ = ["Host", "HostPlumbing", "seen"]
