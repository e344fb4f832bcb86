"""Compute anew what a module keeps once computed: `if self._x is None: self._x = …` followed by `return self._x`.

A module of JAX holds no values between calls. Where nothing else sets the attribute, it holds that one value for ever.
"""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import blocks, is_none


def compute_anew(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the methods of a class that give back such an attribute."""
    for block in list(blocks(function)):
        for index in range(len(block) - 1):
            kept = _kept(block[index])
            if kept is None or not _is_only_one(definition, *kept) or not _returns(block[index + 1], kept[0]):
                continue
            text = f"`self.{kept[0]}` is computed at every call; the source keeps the first value it computes"
            context.assume(block[index], text)
            block[index + 1].value = kept[1].value
            del block[index]
            break


def _kept(statement: ast.stmt) -> tuple[str, ast.Assign] | None:
    """The attribute, and its assignment, of `if self.x is None: self.x = value`."""
    if not isinstance(statement, ast.If) or statement.orelse or len(statement.body) != 1:
        return None
    inner, test = statement.body[0], statement.test
    target = inner.targets[0] if isinstance(inner, ast.Assign) else None
    if not (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"):
        return None
    return (target.attr, inner) if ast.unparse(test) == f"{ast.unparse(target)} is None" else None


def _is_only_one(definition: Definition, attribute: str, made: ast.Assign) -> bool:
    """Whether every other assignment to the attribute is the constructor's, of None."""
    sets = [
        n
        for n in ast.walk(definition.node)
        if isinstance(n, ast.Attribute) and n.attr == attribute and not isinstance(n.ctx, ast.Load)
    ]
    plain = [
        n
        for n in ast.walk(definition.node)
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == f"self.{attribute}" and is_none(n.value)
    ]
    return definition.is_class and bool(plain) and len(sets) == len(plain) + 1


def _returns(statement: ast.stmt, attribute: str) -> bool:
    return isinstance(statement, ast.Return) and ast.unparse(statement) == f"return self.{attribute}"


EXAMPLES = (
    Example(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self._table = None

            @property
            def table(self):
                if self._table is None:
                    self._table = self.total / self.count[:, None]
                return self._table
        """,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self._table = None

            @property
            def table(self):
                return self.total / self.count[:, None]
        """,
    ),
    unchanged(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self._table = None

            def table(self):
                if self._table is None:
                    self._table = self.total / 2
                return self._table

            def forward(self, x):
                self._table = None
                self._table = x
                return x
        """
    ),
)
