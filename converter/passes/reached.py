"""Drop the definitions that nothing refers to any more, once branches and arguments are gone."""

import ast
from collections.abc import Iterator

from maxcode.converter.context import Context, Definition, callees
from maxcode.converter.example import Example


def drop_unreached(context: Context) -> None:
    """Keep what the entry class refers to, directly or through other definitions."""
    known = {d.qualified: d for d in context.definitions}
    reached: set[str] = set()
    pending = [context.entry] if context.entry in known else []
    while pending:
        qualified = pending.pop()
        if qualified not in reached:
            reached.add(qualified)
            pending += [q for q in _referred(known[qualified]) if q in known]
    if reached:
        context.definitions = [d for d in context.definitions if d.qualified in reached]


def _referred(definition: Definition) -> Iterator[str]:
    """Qualified names that a definition names, in quoted annotations too, or was seen to call."""
    for node in ast.walk(definition.node):
        if isinstance(node, ast.Name | ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            qualified = definition.file.qualify(root)
            if qualified:
                yield f"{qualified}.{rest}" if rest else qualified
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield definition.file.qualify(node.value) or ""
        elif isinstance(node, ast.Call):
            for name in callees(node):
                yield name.removeprefix("module:")
                yield name.rpartition(".")[0]


EXAMPLES = (
    Example(
        """
        def used(x):
            return x

        def unused(x):
            return used(x)

        class Net(nn.Module):
            def forward(self, x):
                return used(x)
        """,
        """
        def used(x):
            return x

        class Net(nn.Module):
            def forward(self, x):
                return used(x)
        """,
    ),
)
