"""What no run came to in a library of layers, where one factory names every block that any model may be built from.

Converting all of them would bury the model in code that it never runs. Functions whose body was never evaluated, and
constructions of classes that were never built, raise in the converted code and are assumptions (decision 15). Smaller
places are left out by `unreached`, where a rule is missing.
"""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, seen
from maxcode.converter.nodes import call
from maxcode.converter.output_records import is_record

_HINT = "convert a configuration that has it"


def is_layers(module: str) -> bool:
    """Whether a module belongs to a library of layers, whose unrun parts are left out."""
    return any(f"{module}.".startswith(prefix) for prefixes in tables.LAYER_MODULES.values() for prefix in prefixes)


class Unrun(ast.NodeTransformer):
    """Rewrite one definition of a library of layers; run before anything is followed from it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if self.depth == 0 and not _ran(node.body) and _can_be_seen(node.body):
            has_text = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            node.body = [*node.body[:has_text], self._raising(node, f"{node.name}()")]
            return node
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        qualified = self._class(node.func) if self.depth else None
        if qualified is None or seen(node) or qualified in self.context.built:
            self.generic_visit(node)
            return node
        return self._raised(node, ast.unparse(node.func))

    def _class(self, function: ast.expr) -> str | None:
        """The library's class that a call makes an instance of, by the names in its file."""
        file = getattr(function, "file", None)
        qualified = file.qualify(function.id) if file is not None and isinstance(function, ast.Name) else None
        if qualified is None or not is_layers(qualified.rpartition(".")[0]):
            return None
        located = self.context.project.outline(qualified)
        if located is None or not isinstance(located[1], ast.ClassDef):
            return None
        found = f"{located[0].module}.{located[2]}"
        return None if found.startswith(tables.PLUMBING_MODULES) or is_record(self.context, found) else found

    def _raising(self, node: ast.stmt, what: str) -> ast.stmt:
        return ast.copy_location(ast.Expr(self._raised(node, what)), node)

    def _raised(self, node: ast.AST, what: str) -> ast.expr:
        text = f"{what}: no run came to it; {_HINT}"
        made = call(self.context.use("gaps", "gap"), ast.Constant("CV106"), ast.Constant(text))
        made.unrun, made.file = what, getattr(node, "file", None)
        return ast.copy_location(made, node)


def assume_unrun(context: Context) -> None:
    """Record what was left out of the definitions that are converted; run when they are known."""
    for definition in context.definitions:
        for node in ast.walk(definition.node):
            if hasattr(node, "unrun"):
                context.assume(node, f"no run came to {node.unrun}; the converted code raises there")


def _ran(body: list[ast.stmt]) -> bool:
    return any(seen(n) for statement in body for n in ast.walk(statement))


def _can_be_seen(body: list[ast.stmt]) -> bool:
    """Whether a body has expressions that a run would have noted, other than what it raises."""
    noted = (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.Name)
    parts = [s for s in body if not isinstance(s, ast.Raise)]
    return any(isinstance(n, noted) for statement in parts for n in ast.walk(statement))
