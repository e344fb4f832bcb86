"""Changes to a module that is built already: `named_children()` and `_modules` become functions of the support library.

Layers without weights may be plain functions here, which are no children. So a loop over children may ask of which
class they are, read them, go down into them and put others in their place; to run them or gather them is a gap.
"""

import ast

from maxcode.converter.context import Context, Definition, callees, kinds
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import call, dress, typed

_ASKED = {"named_children": "named_children", "children": "children"}
_HELD = "_modules"


def change_children(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite one function."""
    del definition
    Children(context, function).visit(function)


class Children(ast.NodeTransformer):
    """The calls and writes of one function."""

    def __init__(self, context: Context, function: ast.FunctionDef) -> None:
        self.context, self.function = context, function
        self.loops = {id(loop.iter): loop for loop in ast.walk(function) if isinstance(loop, ast.For)}
        self.counted = {id(inner) for n in ast.walk(function) for inner in _counted(n)}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        asked = _asked(node)
        if asked is None:
            self.generic_visit(node)
            return node
        loop = self.loops.get(id(node))
        is_fine = id(node) in self.counted or (loop is not None and _only_looks(loop, self.function.name))
        if not is_fine:
            reason = "its layers without weights are functions here, so they would be left out"
            self.context.gap("CV115", node, f"torch.nn.Module.{asked}", reason, "name the layers")
            return node
        receiver = node.func.value.value if ast.unparse(node.func).endswith(f"{_HELD}.items") else node.func.value
        return typed(call(self.context.use("children", asked), self.visit(receiver)), node)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target = node.targets[0]
        is_held = isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute)
        if not is_held or target.value.attr != _HELD or kinds(target.value.value) != {"module"}:
            self.generic_visit(node)
            return node
        put = call(self.context.use("children", "set_child"), target.value.value, target.slice, self.visit(node.value))
        return dress(ast.Expr(put), node)


def _asked(node: ast.Call) -> str | None:
    """The support function for `x.named_children()`, `x.children()` or `x._modules.items()`."""
    if not isinstance(node.func, ast.Attribute) or node.args or node.keywords:
        return None
    if node.func.attr == "items" and isinstance(node.func.value, ast.Attribute) and node.func.value.attr == _HELD:
        return "named_children"
    ours = all(c.startswith("torch.nn.modules.module.Module.") for c in callees(node)) and callees(node)
    return _ASKED.get(node.func.attr) if ours or kinds(node.func.value) == {"module"} else None


def _counted(node: ast.AST) -> list[ast.expr]:
    """`x.children()` in `if len(list(x.children())) > 0:`: what is done only where there is something below.

    Functions have nothing below that could be asked for, so it makes no difference there to leave them out.
    """
    test = node.test if isinstance(node, ast.If) and not node.orelse else None
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Gt) and len(test.ops) == 1):
        return []
    inner, node = test.left, test
    for name in ("len", "list"):
        if not (isinstance(inner, ast.Call) and ast.unparse(inner.func) == name and len(inner.args) == 1):
            return []
        inner = inner.args[0]
    is_zero = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value == 0
    return [inner] if is_zero else []


def _only_looks(loop: ast.For, function: str) -> bool:
    """Whether a loop's body asks for the class of a child, reads it or hands it to the function itself, and no more."""
    target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) else loop.target
    if not isinstance(target, ast.Name):
        return False
    fine: set[int] = set()
    for node in (n for statement in loop.body for n in ast.walk(statement)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", function, f"self.{function}"):
            fine |= {id(a) for a in node.args}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            fine.add(id(node.value))
    uses = [n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == target.id]
    return all(id(n) in fine for n in uses)


EXAMPLES = (
    Example(
        """
        def freeze(model):
            # model: module
            # module: module
            for name, module in model.named_children():
                if isinstance(module, nn.BatchNorm2d):
                    model._modules[name] = Frozen(module.num_features)
                if len(list(module.children())) > 0:
                    freeze(module)
        """,
        """
        def freeze(model):
            # model: module
            # module: module
            for name, module in named_children(model):
                if isinstance(module, nn.BatchNorm2d):
                    set_child(model, name, Frozen(module.num_features))
                if len(list(children(module))) > 0:
                    freeze(module)
        """,
    ),
    unchanged(
        """
        def run(model, x):
            # model: module
            for layer in model.children():
                x = layer(x)
            return x
        """,
        gap="CV115",
    ),
    unchanged(
        """
        def body(model):
            # model: module
            return list(model.children())[:-1]
        """,
        gap="CV115",
    ),
    unchanged("def f(table: dict):\n    return [k for k in table.children()]"),
)
