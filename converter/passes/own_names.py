"""Call torch's functions by their own names where a local name stands for one: `f = nn.utils.weight_norm; f(layer)`."""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import blocks, copied


def use_own_names(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the calls of local names that a block binds to torch functions and nothing else binds."""
    bound = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    bound += [a.arg for a in ast.walk(function) if isinstance(a, ast.arg)]
    for block in list(blocks(function)):
        given = [(s.targets[0].id, s) for s in block if _names_function(definition, s)]
        for name in dict.fromkeys(n for n, _ in given):
            statements = [s for n, s in given if n == name]
            if len(statements) == bound.count(name):
                _spell(block, name, statements)
                if not _reads(function, name):
                    block[:] = [s for s in block if s not in statements]


def _names_function(definition: Definition, statement: ast.stmt) -> bool:
    """Whether a statement binds a name to a function of torch, by its dotted name."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return False
    value = statement.value
    if not (isinstance(statement.targets[0], ast.Name) and isinstance(value, ast.Attribute)):
        return False
    root, _, rest = ast.unparse(value).partition(".")
    qualified = f"{definition.file.qualify(root)}.{rest}" if root.isidentifier() else ""
    return qualified.startswith(("torch.nn.utils.", "torch.nn.functional.")) and rest.rpartition(".")[2].islower()


def _spell(block: list[ast.stmt], name: str, statements: list[ast.stmt]) -> None:
    """Put the function that a name stands for in its place, statement by statement."""
    current: ast.expr | None = None
    for statement in block:
        if statement in statements:
            current = statement.value
        elif current is not None:
            _Spell(name, current).visit(statement)


class _Spell(ast.NodeTransformer):
    def __init__(self, name: str, function: ast.expr) -> None:
        self.name, self.function = name, function

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == self.name:
            node.func = copied(self.function)
        return node


def _reads(function: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(function))


EXAMPLES = (
    Example(
        """
        def f(layer, flag: bool):
            norm = nn.utils.weight_norm
            norm = nn.utils.parametrizations.weight_norm
            if flag:
                layer = norm(layer, dim=1)
            return norm(layer, name="weight", dim=2)
        """,
        """
        def f(layer, flag: bool):
            if flag:
                layer = nn.utils.parametrizations.weight_norm(layer, dim=1)
            return nn.utils.parametrizations.weight_norm(layer, name="weight", dim=2)
        """,
    ),
    unchanged(
        """
        def f(layer, flag: bool):
            norm = nn.utils.weight_norm
            if flag:
                norm = nn.utils.parametrizations.weight_norm
            return norm(layer)
        """
    ),
)
