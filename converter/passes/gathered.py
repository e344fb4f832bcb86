"""Gather layers in a local list: `self.block = []`, grown in a loop, then `self.block = nn.ModuleList(self.block)`.

A module's attribute holds layers only once they are a `ModuleList`; until then the list is the constructor's own.
"""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import stored, typed

_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")


def gather_locally(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the constructors that fill a list under the name that its container gets."""
    if function.name != "__init__":
        return
    body = function.body
    for start, statement in enumerate(body):
        attribute = _begun(statement)
        if attribute is None:
            continue
        end = next((i for i in range(start + 1, len(body)) if _closed(body[i], attribute)), None)
        if end is not None:
            taken = {*stored(body), *(a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg))}
            rename = _Rename(attribute, attribute if attribute not in taken else f"{attribute}_list")
            body[start:end] = [rename.visit(s) for s in body[start:end]]
            body[end].value = rename.visit(body[end].value)


def _begun(statement: ast.stmt) -> str | None:
    """The attribute that a statement sets to an empty list or dictionary."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    empty = ast.unparse(value) in ("[]", "list()", "{}", "dict()")
    own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    return target.attr if empty and own else None


def _closed(statement: ast.stmt, attribute: str) -> bool:
    """Whether a statement puts the list into a container of layers, under the same name."""
    if not isinstance(statement, ast.Assign) or ast.unparse(statement.targets[0]) != f"self.{attribute}":
        return False
    made = statement.value
    if not isinstance(made, ast.Call) or ast.unparse(made.func).rpartition(".")[2] not in _CONTAINERS:
        return False
    return len(made.args) == 1 and ast.unparse(made.args[0]).lstrip("*") == f"self.{attribute}"


class _Rename(ast.NodeTransformer):
    def __init__(self, attribute: str, local: str) -> None:
        self.attribute, self.local = attribute, local

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr != self.attribute or ast.unparse(node.value) != "self":
            return node
        return typed(ast.Name(self.local, type(node.ctx)()), node)


EXAMPLES = (
    Example(
        """
        class Net(nn.Module):
            def __init__(self, sizes, extra):
                super().__init__()
                self.block = []
                self.extra = []
                for size in sizes:
                    self.block += [nn.Linear(size, size)]
                    self.extra.append(extra)
                self.block = nn.ModuleList(self.block)
                self.extra = nn.Sequential(*self.extra)
        """,
        """
        class Net(nn.Module):
            def __init__(self, sizes, extra):
                super().__init__()
                block = []
                extra_list = []
                for size in sizes:
                    block += [nn.Linear(size, size)]
                    extra_list.append(extra)
                self.block = nn.ModuleList(block)
                self.extra = nn.Sequential(*extra_list)
        """,
    ),
    unchanged(
        """
        class Net(nn.Module):
            def __init__(self, sizes):
                super().__init__()
                self.sizes = []
                for size in sizes:
                    self.sizes.append(size)
        """
    ),
)
