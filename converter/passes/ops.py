"""Replace torch calls, methods and constants by JAX, through the rule tables."""

import ast

from maxcode.converter import function_values as values
from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.autograd import is_own_call
from maxcode.converter.context import Context, Definition, broken, callees, copy_facts, kinds, path_of, seen
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import TENSOR, Kinds
from maxcode.converter.library import defines
from maxcode.converter.nodes import attribute, call, typed
from maxcode.converter.passes.tensor_tests import is_isinstance_tensor, tested_tensor
from maxcode.converter.passing import apply
from maxcode.converter.rule import DEPENDS_ON_DATA, Applied, NoRule, apply_attribute, apply_op
from maxcode.converter.rules import constants

_PLAIN_TENSOR_ATTRIBUTES = frozenset({"shape", "dtype", "ndim", "at", "size", "itemsize", "nbytes"})
_DEVICE_KEYWORDS = frozenset(
    {"device", "pin_memory", "non_blocking", "requires_grad", "memory_format", "layout", "generator"}
)
# Tensor methods that draw: (what they draw, argument names, torch's defaults).
_DRAWS = {
    "torch.Tensor.uniform": ("uniform", ("from", "to"), (0.0, 1.0)),
    "torch.Tensor.normal": ("normal", ("mean", "std"), (0.0, 1.0)),
}
_FILLED = frozenset({"jnp.empty", "jnp.zeros", "jnp.ones"})  # calls whose first argument is the shape
_MODULE = "torch.nn.modules.module.Module."
_LOSSES = "transformers.loss."
_PYTHON = frozenset({"__getitem__", "keys", "items", "values", "append", "extend"})


def convert_operations(context: Context) -> None:
    """Convert the expressions of every function, method and constant."""
    for definition in context.definitions:
        if isinstance(definition.node, ast.ClassDef | ast.FunctionDef):
            for function in list(definition.functions()):
                converting = Ops(context, definition, function)
                apply(converting, function)
                defaults = function.args
                defaults.defaults = [converting.visit(d) for d in defaults.defaults]
                defaults.kw_defaults = [d and converting.visit(d) for d in defaults.kw_defaults]
        else:
            empty = ast.arguments([], [], None, [], [], None, [])
            holder = ast.FunctionDef(definition.name, empty, [definition.node], [], None)
            apply(Ops(context, definition, holder), holder)
    for definition in context.definitions:
        for node in _left(definition):
            reason = "this use of it has no rule"
            context.gap("CV109", node, definition.file.imports[node.id], reason, "write it another way, or add a rule")


class Ops(ast.NodeTransformer):
    """One function of one definition; constructor statements that build modules are left to the modules pass."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef) -> None:
        registry.load()
        self.context, self.definition = context, definition
        self.types = Kinds(context, definition, function)
        self.compared = False
        self.constructs = function.name == "__init__" and not context.is_program
        self.local = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}

    # --- calls

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if (made := self._partial(node)) is not None:
            return made
        qualified = self._callee(node)
        home = next((m for p, m in tables.TORCH_PACKAGES.items() if qualified and qualified.startswith(p)), None)
        if home is not None and (made := self._packaged_call(node, qualified, home)) is not None:
            return made
        if qualified and is_own_call(qualified):
            self.generic_visit(node)
            return node
        if qualified and qualified.startswith(_MODULE) and isinstance(node.func, ast.Attribute):
            return self._module_call(node, f"torch.nn.Module.{tables.last(qualified)}")
        if qualified and values.is_torch_function(qualified):
            if self._is_held(node.func) and not qualified.startswith("torch.Tensor."):
                self.generic_visit(node)
                return node
            return self._torch_call(node, qualified)
        if qualified and qualified.startswith(_LOSSES):
            self.generic_visit(node)
            self.context.support.setdefault("losses", set())
            return typed(ast.Call(self.context.use("losses", tables.last(qualified)), node.args, node.keywords), node)
        if isinstance(node.func, ast.Attribute) and not qualified and self._is_tensor_method(node.func):
            return self._torch_call(node, f"torch.Tensor.{node.func.attr}")
        if is_isinstance_tensor(node):
            node.args[0] = self.visit(node.args[0])
            self.context.imports.add("import jax")
            node.args[1] = attribute("jax", "Array")
            return node
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and self._reads_tensor_of_module(node):
            # A buffer may be stored as a constant; indexing reads it as an array either way.
            return typed(ast.Subscript(node, ast.Constant(...), ast.Load()), node)
        return node

    def _module_call(self, node: ast.Call, qualified: str) -> ast.expr:
        """A method that every module has; those without a rule are the support library's own."""
        if not registry.has_op(qualified):
            self.generic_visit(node)
            return node
        return self._torch_call(node, qualified)

    def _packaged_call(self, node: ast.Call, qualified: str, home: str) -> ast.expr | None:
        """A class of a torch package that a support module stands for, or a method of it; None where that has none."""
        owner, short = qualified.rpartition(".")[0], tables.last(qualified)
        if defines(home, short):
            self.generic_visit(node)
            return typed(ast.Call(self.context.use(home, short), node.args, node.keywords), node)
        if not defines(home, tables.last(owner)):
            return None
        self.generic_visit(node)
        return node

    def _is_held(self, function: ast.expr) -> bool:
        """Whether a function is called that the module or a local name holds: which one, a configuration may choose."""
        if isinstance(function, ast.Attribute):
            return ast.unparse(function.value) == "self" and not self.types.is_tensor(function.value)
        return isinstance(function, ast.Name) and function.id in self.types.local

    def _reads_tensor_of_module(self, node: ast.Call) -> bool:
        owner = node.args[0]
        return (
            self.types.is_tensor(node)
            and isinstance(owner, ast.Name)
            and (owner.id == "self" or "module" in kinds(owner))
        )

    def _callee(self, node: ast.Call) -> str | None:
        found = {registry.canonical(c) for c in callees(node)}
        if len(found) == 1:
            return found.pop()
        if found:
            tensors = [c for c in found if c.startswith("torch.Tensor.")]
            return tensors[0] if tensors else None
        if hasattr(node, "seen"):
            return None  # made by a pass to stand for a value that the run saw
        return self._static_name(node.func)

    def _static_name(self, function: ast.expr) -> str | None:
        """Qualified torch name of a dotted expression, by the file's imports."""
        text = ast.unparse(function)
        root, _, rest = text.partition(".")
        if root in self.local or not all(
            isinstance(n, ast.Attribute | ast.Name | ast.expr_context) for n in ast.walk(function)
        ):
            return None
        qualified = self.definition.file.imports.get(root)
        if qualified is None or not (qualified + ".").startswith("torch."):
            return None
        return registry.canonical(f"{qualified}.{rest}" if rest else qualified)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """`x.clone() if isinstance(x, torch.Tensor) else x`: the test says what x is, whatever the run saw."""
        narrowed = tested_tensor(node.test)
        before = self.types.names.get(narrowed) if narrowed else None
        node.test = self.visit(node.test)
        if narrowed:
            self.types.names[narrowed] = TENSOR
            for child in ast.walk(node.body):
                if isinstance(child, ast.Name) and child.id == narrowed:
                    child.seen = {"kinds": ["tensor"]}
        node.body = self.visit(node.body)
        if narrowed:
            self.types.names[narrowed] = before or frozenset()
        node.orelse = self.visit(node.orelse)
        return node

    def _is_tensor_method(self, function: ast.Attribute) -> bool:
        return function.attr not in _PYTHON and self.types.is_method(function)

    def _torch_call(self, node: ast.Call, qualified: str) -> ast.expr:
        arguments = [self.visit(a) for a in node.args]
        keywords = {k.arg: self.visit(k.value) for k in node.keywords if k.arg not in _DEVICE_KEYWORDS}
        if None in keywords:
            return self._gap(node, qualified, "is called with `**` of a dictionary", "write the keywords out")
        drawn = self._drawn_parameter(node, qualified, arguments, keywords)
        if drawn is not None:
            return drawn
        try:
            if qualified.startswith("torch.nn.Module."):
                arguments = [self.visit(node.func.value), *arguments]
            elif qualified.startswith("torch.Tensor.") and (receiver := self._receiver(node)) is not None:
                arguments = [receiver, *arguments]
            applied = apply_op(qualified, arguments, keywords, concrete=hasattr(node, "on_host"))
        except NoRule as missing:
            if any(isinstance(a, ast.Starred) for a in arguments) and (
                spread := self._spread(node, qualified, arguments, keywords)
            ):
                return spread
            if DEPENDS_ON_DATA in missing.reason and not seen(node):
                return self._refused(node, qualified, missing.reason)
            return self._gap(node, qualified, missing.reason, "add an op rule in converter/rules/ops/")
        return self._used(applied, node)

    def _spread(self, node: ast.Call, qualified: str, arguments: list, keywords: dict) -> ast.expr | None:
        """A call whose `*` arguments fill named ones: the helper that takes torch's arguments takes these."""
        plain = [a for a in arguments if not isinstance(a, ast.Starred)]
        try:
            function = self._used(values.partial_value(qualified, plain, keywords), node.func)
        except NoRule:
            return None
        return typed(ast.Call(function, arguments, [ast.keyword(k, v) for k, v in keywords.items()]), node)

    def _refused(self, node: ast.expr, torch_name: str, reason: str) -> ast.expr:
        """A branch that no run took, and that JAX could not compile: the emitted code raises there, and says so."""
        self.context.assume(node, f"no run came to this use of {torch_name} ({reason}); the converted code raises here")
        return self._raising(node, torch_name, reason)

    def _drawn_parameter(self, node: ast.Call, qualified: str, arguments: list, keywords: dict) -> ast.expr | None:
        """A tensor filled with random numbers in a constructor: initial values, drawn from the constructor's `rngs`."""
        if not self.constructs or qualified not in _DRAWS:
            return None
        receiver = self._receiver(node)
        if receiver is None:
            return None
        names = dict(zip(_DRAWS[qualified][1], arguments, strict=False)) | keywords
        low, high = (
            names.get(n, ast.Constant(d)) for n, d in zip(_DRAWS[qualified][1], _DRAWS[qualified][2], strict=True)
        )
        self.context.imports.add("import jax")
        filled = isinstance(receiver, ast.Call) and ast.unparse(receiver.func) in _FILLED
        shape = receiver.args[0] if filled else attribute(receiver, "shape")
        key = call("rngs.params")
        if qualified.endswith("uniform"):
            return typed(call("jax.random.uniform", key, shape, minval=low, maxval=high), node)
        noise = ast.BinOp(high, ast.Mult(), call("jax.random.normal", key, shape))
        return typed(ast.BinOp(low, ast.Add(), noise), node)

    def _receiver(self, node: ast.Call) -> ast.expr | None:
        if not isinstance(node.func, ast.Attribute) or self._static_name(node.func) is not None:
            return None
        return self.visit(node.func.value)

    def _used(self, applied: Applied, node: ast.expr) -> ast.expr:
        self.context.imports |= applied.imports
        self.context.helpers |= applied.helpers
        expression = applied.expr
        if self.constructs:
            # Initial values are drawn from the constructor's generator, not from a call's key.
            expression = values.DrawFromRngs().visit(expression)
        return typed(expression, node) if not hasattr(expression, "seen") or expression is not node else expression

    def _gap(self, node: ast.expr, torch_name: str, reason: str, hint: str) -> ast.expr:
        self.context.gap("CV101", node, torch_name, reason, hint)
        return self._raising(node, torch_name, reason)

    def _raising(self, node: ast.expr, torch_name: str, reason: str) -> ast.expr:
        where = f"{path_of(node).rsplit('/', 1)[-1]}:{getattr(node, 'lineno', 0)}"
        text = f"{where}: {torch_name}: {reason}"
        return copy_facts(call(self.context.use("gaps", "gap"), ast.Constant("CV101"), ast.Constant(text)), node)

    # --- names and attributes

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            node.value = self.visit(node.value)
            return node
        constant = self._constant(node)
        if constant is not None:
            return constant
        if self._is_constant_buffer(node):
            node.value = self.visit(node.value)
            return typed(ast.Subscript(node, ast.Constant(...), ast.Load()), node)
        info = self._static_name(node.value.func) if isinstance(node.value, ast.Call) else None
        if info in ("torch.finfo", "torch.iinfo") and registry.entries(registry.ATTRIBUTES, f"{info}.{node.attr}"):
            return self._used(apply_attribute(f"{info}.{node.attr}", self.visit(node.value)), node)
        if registry.entries(registry.ATTRIBUTES, f"torch.dtype.{node.attr}") and self.types.of(node.value) == {"dtype"}:
            return self._used(apply_attribute(f"torch.dtype.{node.attr}", self.visit(node.value)), node)
        if self._is_tensor_attribute(node):
            node.value = self.visit(node.value)
            try:
                return self._used(apply_attribute(f"torch.Tensor.{node.attr}", node.value), node)
            except NoRule:
                return node
        node.value = self.visit(node.value)
        return node

    def _constant(self, node: ast.expr) -> ast.expr | None:
        qualified = self._static_name(node)
        if qualified is None:
            return None
        if constants.has_constant(qualified):
            return self._used(constants.apply_constant(qualified, compared=self.compared), node)
        return self._function_value(node, qualified) if qualified in registry.OPS else None

    def _function_value(self, node: ast.expr, qualified: str) -> ast.expr | None:
        """A torch function handed about as a value (`{"gelu": F.gelu}`): a lambda of the arguments it must have."""
        try:
            return self._used(values.function_value(qualified), node)
        except NoRule as missing:
            self.context.gap("CV102", node, qualified, f"is used as a value: {missing.reason}", "wrap it in a lambda")
            return None

    def _partial(self, node: ast.Call) -> ast.expr | None:
        """`partial(F.softmax, dim=-1)`; None for what is no partial of a torch function."""
        qualified = self._static_name(node.args[0]) if values.is_partial(node, self.definition.file) else None
        if qualified is None or qualified not in registry.OPS:
            return None
        first, *args = node.args
        args, keywords = [self.visit(a) for a in args], {k.arg: self.visit(k.value) for k in node.keywords}
        try:
            function = self._used(values.partial_value(qualified, args, keywords), first)
        except NoRule as missing:
            return self._gap(node, qualified, missing.reason, "write a function that calls it")
        node.args, node.keywords = [function, *args], [ast.keyword(k, v) for k, v in keywords.items()]
        return node

    def _is_constant_buffer(self, node: ast.Attribute) -> bool:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return "constant" in self.context.class_facts(self.definition.qualified).get(node.attr, ())
        for owner in seen(node.value).get("names", ()):
            if "constant" in self.context.class_facts(owner.removeprefix("module:")).get(node.attr, ()):
                return True
        return False

    def _is_tensor_attribute(self, node: ast.Attribute) -> bool:
        return (
            node.attr not in _PLAIN_TENSOR_ATTRIBUTES
            and bool(self.types.of(node.value))
            and self.types.is_tensor(node.value)
        )

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.definition.file.imports and node.id not in self.local:
            constant = self._constant(node)
            if constant is not None:
                return constant
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        compared, self.compared = self.compared, True
        self.generic_visit(node)
        self.compared = compared
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Leave annotations to the signature pass."""
        node.body = [self.visit(s) for s in node.body]
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [self.visit(d) if d is not None else None for d in node.args.kw_defaults]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node


def ensures(context: Context, definition: Definition) -> list[str]:
    """No torch name is left outside annotations and bases, which the signature pass rewrites."""
    return [broken(node, "still names torch") for node in _left(definition)]


def _left(definition: Definition) -> list[ast.Name]:
    """Names of the source that still mean torch."""
    imports = definition.file.imports
    local = {a.arg for a in ast.walk(definition.node) if isinstance(a, ast.arg)}
    names = {n for n, q in imports.items() if (q + ".").startswith("torch.")} - local
    found: list[ast.Name] = []
    pending: list[ast.AST] = [definition.node]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and node.id in names and hasattr(node, "file"):
            found.append(node)
        skipped = ("annotation", "returns", "decorator_list", "bases")
        fields = [v for f, v in ast.iter_fields(node) if f not in skipped]
        pending += [n for v in fields for n in (v if isinstance(v, list) else [v]) if isinstance(n, ast.AST)]
    return found


EXAMPLES = (
    Example(
        """
        def f(x: torch.Tensor, n: int):
            y = torch.cat([x, F.silu(x)], dim=-1)
            return y.transpose(0, 1).to(torch.float32) * n
        """,
        """
        def f(x: torch.Tensor, n: int):
            y = jnp.concatenate([x, jax.nn.silu(x)], axis=-1)
            return y.swapaxes(0, 1).astype(float32) * n
        """,
    ),
    Example(
        """
        def f(x: torch.Tensor, dtype):  # dtype: dtype
            return x.dtype.is_floating_point and not dtype.is_complex
        """,
        """
        def f(x: torch.Tensor, dtype):  # dtype: dtype
            return jnp.issubdtype(x.dtype, jnp.floating) and not jnp.issubdtype(dtype, jnp.complexfloating)
        """,
    ),
    unchanged("def f(table: dict, n: int):\n    return table.get(n)"),
)
