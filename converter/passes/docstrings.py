"""Keep one line of each docstring; classes also say where their source stands."""

import ast
import textwrap
from pathlib import Path

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example

_INDENT = 4
_WIDTH = 120 - _INDENT - 2 * len('"""')  # of what stands in a class's docstring on one line; a method's stands deeper


def shorten_docstrings(context: Context, definition: Definition) -> None:
    """Shorten the docstrings of a definition and its methods in place."""
    node = definition.node
    if isinstance(node, ast.ClassDef):
        where = f"{Path(definition.file.path).name}:{node.lineno}"
        text = first_line(node)
        joined = f"{text} Source: {where}." if text else f"Source: {where}."
        _put(node, joined if len(joined) <= _WIDTH else f"{_wrapped(text)}\n\nSource: {where}.\n")
    for child in ast.walk(node):
        if isinstance(child, ast.FunctionDef):
            text = first_line(child)
            _put(child, text if len(text) <= _WIDTH - _INDENT else f"{_wrapped(text)}\n")


def first_line(node: ast.AST) -> str:
    """First sentence or line of a docstring, closed by a full stop; "" when it says nothing in prose."""
    text = ast.get_docstring(node) or ""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if (
            not line.strip()
            or line.strip().endswith(":")
            or line.strip().startswith(("Args", "Example", ">>>", "```", "- "))
        ):
            break
        lines.append(line.strip())
        if line.rstrip().endswith("."):
            break
    joined = " ".join(lines)
    sentence = joined.split(". ")[0].rstrip()
    if not sentence or "(`" in sentence[:60]:
        return ""
    if len(sentence) > 150:
        sentence = sentence[:147].rsplit(" ", 1)[0] + " …"
    return sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False))


def _put(node: ast.ClassDef | ast.FunctionDef, text: str) -> None:
    body = node.body
    if (
        body
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        del body[0]
    if text:
        statement = ast.Expr(ast.Constant(text))
        statement.leading, statement.spaced = [], False
        body.insert(0, statement)
        if len(body) > 1 and isinstance(node, ast.ClassDef):
            body[1].spaced = True
    if not body:
        body.append(ast.Pass())
    elif len(body) > 1 and text:
        body[:] = [s for s in body if not isinstance(s, ast.Pass)]


EXAMPLES = (
    Example(
        """
        class Net(nn.Module):
            '''Does a thing. And says a lot more of it.

            Args: none.
            '''

            def forward(self, x):
                '''Args: x.'''
                return x
        """,
        """
        class Net(nn.Module):
            '''Does a thing. Source: example.py:5.'''

            def forward(self, x):
                return x
        """,
    ),
)
