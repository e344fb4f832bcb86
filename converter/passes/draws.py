"""Let numbers that a forward draws from Python's or numpy's generators come from the keys of the call.

A program that is compiled once would draw them once. They are written as torch's draws, which later passes convert; one
that only training asks for is made in training alone, since other calls have no keys.
"""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import loads, stored

_TRAINING = "self.training"
_DRAWS = {  # function -> how many bounds it takes
    "random.random": 0, "random.uniform": 2, "numpy.random.rand": 0, "numpy.random.random": 0,
    "numpy.random.uniform": 2,
}  # fmt: skip


def draw_from_keys(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite such draws of a function; constructors run once and keep theirs."""
    if function.name != "__init__":
        _Draw(definition, _asked_in_training(function)).visit(function)


def _asked_in_training(function: ast.FunctionDef) -> set[str]:
    """Names that are read behind `self.training and …` only."""
    guarded = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.BoolOp) and isinstance(n.op, ast.And) and ast.unparse(n.values[0]) == _TRAINING
    ]
    behind = {id(x) for n in guarded for v in n.values[1:] for x in loads([v])}
    every = list(loads([function]))
    return {n.id for n in every if id(n) in behind} - {n.id for n in every if id(n) not in behind}


class _Draw(ast.NodeTransformer):
    def __init__(self, definition: Definition, in_training: set[str]) -> None:
        self.imports, self.in_training = definition.file.imports, in_training

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        before = node.value
        self.generic_visit(node)
        if node.value is not before and set(stored([node])) <= self.in_training:
            training = ast.parse(_TRAINING, mode="eval").body
            node.value = ast.copy_location(ast.IfExp(training, node.value, ast.Constant(0.0)), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        root, _, rest = ast.unparse(node.func).partition(".")
        bounds = _DRAWS.get(f"{self.imports.get(root)}.{rest}")
        if bounds is None or node.keywords or len(node.args) not in (0, bounds) or self.imports.get("torch") != "torch":
            return node
        drawn = ast.copy_location(ast.parse("torch.rand([])", mode="eval").body, node)
        low, high = node.args or (ast.Constant(0), ast.Constant(1))
        if [ast.unparse(low), ast.unparse(high)] == ["0", "1"]:
            return drawn
        width = ast.BinOp(high, ast.Sub(), low)
        return ast.copy_location(ast.BinOp(ast.BinOp(drawn, ast.Mult(), width), ast.Add(), low), node)


EXAMPLES = (
    Example(
        """
        import random
        def f(x: torch.Tensor, a: float):
            return x * random.uniform(0, 1) + random.random() + random.uniform(a, 2)
        """,
        """
        def f(x: torch.Tensor, a: float):
            return x * torch.rand([]) + torch.rand([]) + (torch.rand([]) * (2 - a) + a)
        """,
    ),
    Example(
        """
        import random
        def f(self, x: torch.Tensor):
            chance = random.uniform(0, 1)
            if self.training and chance < self.drop:
                return x
            return x * 2
        """,
        """
        def f(self, x: torch.Tensor):
            chance = torch.rand([]) if self.training else 0.0
            if self.training and chance < self.drop:
                return x
            return x * 2
        """,
    ),
    unchanged("def f(self, n: int):\n    return self.random.uniform(0, n)"),
)
