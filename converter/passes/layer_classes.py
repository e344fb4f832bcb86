"""Layer classes that are handed about (`norm_layer=nn.LayerNorm`, `partial(nn.LayerNorm, eps=1e-6)`) become values.

Where a class is called by its own name it is left to the pass for constructors; `isinstance` asks for the support
class.
"""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example
from maxcode.converter.layer_values import LayerValue, is_layer_class, layer_value
from maxcode.converter.nodes import call
from maxcode.converter.rule import NoRule

_ASKING = ("isinstance", "issubclass", "type", "super")
_STACKED = ("ModuleList", "Sequential")  # which a layer stack may have taken the place of


def convert_layer_classes(context: Context, definition: Definition) -> None:
    """Rewrite the class values in a definition's functions, their defaults, and tables of the module."""
    values = LayerClasses(context, definition)
    if isinstance(definition.node, ast.Assign):
        values.visit(definition.node)
    for statement in getattr(definition.node, "body", ()):
        if definition.is_class and isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            statement.value = _of_class(values.visit(statement.value))
    for function in definition.functions():
        arguments = function.args
        arguments.defaults = [values.visit(d) for d in arguments.defaults]
        arguments.kw_defaults = [d and values.visit(d) for d in arguments.kw_defaults]
        function.body = [values.visit(statement) for statement in function.body]


def _of_class(value: ast.expr) -> ast.expr:
    """The value as a class attribute: a function there would be taken for a method."""
    return call("staticmethod", value) if isinstance(value, ast.Lambda) else value


class LayerClasses(ast.NodeTransformer):
    """The expressions of one definition."""

    def __init__(self, context: Context, definition: Definition) -> None:
        self.context, self.definition = context, definition

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id in _ASKING:
            if node.func.id == "isinstance" and len(node.args) == 2:
                node.args[1] = self._asked_for(node.args[1])
            return node
        if self._layer(node.func) is None:
            node.func = self.visit(node.func)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._value(node) or self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._value(node) or node

    def _value(self, node: ast.Attribute | ast.Name) -> ast.expr | None:
        qualified = self._layer(node)
        if qualified is None or not isinstance(node.ctx, ast.Load):
            return None
        try:
            applied = layer_value(qualified).applied
        except NoRule as missing:
            self.context.gap("CV124", node, qualified, missing.reason, "call the class where its layer is made")
            return call(self.context.use("gaps", "gap"), ast.Constant("CV124"), ast.Constant(missing.reason))
        self.context.imports |= applied.imports
        self.context.helpers |= applied.helpers
        return ast.copy_location(self.context.distinct(applied.expr), node)

    def _asked_for(self, node: ast.expr) -> ast.expr:
        """What `isinstance` asks for: support classes of the same name mean the same; others cannot be asked for."""
        if isinstance(node, ast.Tuple):
            node.elts = [self._asked_for(element) for element in node.elts]
            return node
        qualified = self._layer(node)
        if qualified is None:
            return node
        short = tables.last(qualified)
        try:
            value = layer_value(qualified)
        except NoRule:
            value = None
        if value is None or value.is_function or short in _STACKED or tables.last(_text(value)) != short:
            reason = "a layer of this class need not be one of a class of its own here"
            self.context.gap("CV124", node, qualified, reason, "ask for a property of the layer instead")
            return call(self.context.use("gaps", "gap"), ast.Constant("CV124"), ast.Constant(f"{qualified}: {reason}"))
        self.context.imports |= value.applied.imports
        self.context.helpers |= value.applied.helpers
        return ast.copy_location(self.context.distinct(value.applied.expr), node)

    def _layer(self, node: ast.expr) -> str | None:
        """The torch layer class that a dotted name means."""
        root, _, rest = ast.unparse(node).partition(".") if isinstance(node, ast.Attribute | ast.Name) else ("", "", "")
        qualified = self.definition.file.qualify(root) if root.isidentifier() else None
        qualified = f"{qualified}.{rest}" if qualified and rest else qualified
        return qualified if qualified and is_layer_class(qualified) else None


def _text(value: LayerValue) -> str:
    return ast.unparse(value.applied.expr)


EXAMPLES = (
    Example(
        """
        class Block(nn.Module):
            def __init__(self, dim, norm=nn.LayerNorm, act=nn.GELU):
                super().__init__()
                self.norm, self.act = norm(dim), act()
                self.out = make(dim, partial(nn.Linear, bias=False))
                self.proj = nn.Linear(dim, dim)
        """,
        """
        class Block(nn.Module):
            def __init__(self, dim, norm=LayerNorm, act=lambda: activations.gelu):
                super().__init__()
                self.norm, self.act = norm(dim), act()
                self.out = make(dim, partial(Linear, bias=False))
                self.proj = nn.Linear(dim, dim)
        """,
    ),
    Example(
        """
        def pick():
            return nn.CrossEntropyLoss
        """,
        """
        def pick():
            return gap(
                "CV124", "torch.nn.CrossEntropyLoss is no value here: it is not made by torch's own arguments"
            )
        """,
        gap="CV124",
    ),
    Example(
        """
        def width(layer):
            return layer.in_features if isinstance(layer, (nn.Linear, nn.Conv2d)) else issubclass(layer, nn.Linear)
        """,
        """
        def width(layer):
            return layer.in_features if isinstance(layer, (Linear, Conv2d)) else issubclass(layer, nn.Linear)
        """,
    ),
    Example(
        """
        def is_active(layer):
            return isinstance(layer, nn.ReLU)
        """,
        """
        def is_active(layer):
            return isinstance(
                layer, gap("CV124", "torch.nn.ReLU: a layer of this class need not be one of a class of its own here")
            )
        """,
        gap="CV124",
    ),
)
