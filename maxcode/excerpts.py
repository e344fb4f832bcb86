"""Where a gap or an assumption stands: lines of the source and the lines that they became, side by side."""

import ast
import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_AROUND = 2  # lines before and after


def with_lines(items: Iterable[Any], files: Mapping[str, str], package: str) -> list[Any]:
    """Gaps or assumptions with `source_lines`, `jax_file`, `jax_line` and `jax_lines` where they can be found.

    Args:
      items: records with `file` and `line` of the source, and `torch_name` for gaps; others pass unchanged.
      files: the emitted package's files by name, as text.
      package: its name.
    """
    return [_with_lines(item, files, package) if isinstance(item, dict) else item for item in items]


def _with_lines(item: dict[str, Any], files: Mapping[str, str], package: str) -> dict[str, Any]:
    path, line = str(item.get("file") or ""), item.get("line")
    source = _read(path) if path else ""
    if not source or not isinstance(line, int) or not 0 < line <= source.count("\n") + 1:
        return item
    found = {"source_lines": excerpt(source, line)} | item
    place = _gap_call(item, files) or _counterpart(source, line, files)
    if place is None:
        return found
    name, number = place
    beside = {"jax_file": f"{package}/{name}", "jax_line": number, "jax_lines": excerpt(files[name], number)}
    return beside | found


def excerpt(text: str, line: int) -> list[list[Any]]:
    """`[[number, text], …]` around a line."""
    lines = text.splitlines()
    first, last = max(1, line - _AROUND), min(len(lines), line + _AROUND)
    return [[number, lines[number - 1]] for number in range(first, last + 1)]


@cache
def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


@cache
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _gap_call(item: dict[str, Any], files: Mapping[str, str]) -> tuple[str, int] | None:
    """The emitted call that raises with a gap's text: it names the source's file, line and function."""
    if not item.get("torch_name"):
        return None
    text = f"{Path(item['file']).name}:{item['line']}: {item['torch_name']}"
    for name, content in files.items():
        for number, line in enumerate(content.splitlines(), 1):
            if text in line:
                return name, number
    return None


def _counterpart(source: str, line: int, files: Mapping[str, str]) -> tuple[str, int] | None:
    """The most similar line of the emitted definition that has the name of the one around the source's line."""
    path = enclosing(source, line)
    for name, content in files.items():
        for candidate in (path, path[:1]):  # the method, else its class
            node = _definition(content, candidate)
            if node is not None:
                text, lines = source.splitlines()[line - 1].strip(), content.splitlines()
                body = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                near = max(body, key=lambda n: difflib.SequenceMatcher(None, text, lines[n - 1].strip()).ratio())
                return name, near
    return None


def enclosing(source: str, line: int) -> tuple[str, ...]:
    """Names of the definitions around a line, outermost first; `forward` is called `__call__` in JAX."""
    tree, names = _tree(source), []
    body: Any = tree.body if tree else []
    while node := next((n for n in body if _is_definition(n) and n.lineno <= line <= (n.end_lineno or 0)), None):
        names.append("__call__" if node.name == "forward" else node.name)
        body = node.body
    return tuple(names)


def _definition(text: str, path: tuple[str, ...]) -> Any:
    node: Any = _tree(text)
    for name in path:
        node = next((n for n in getattr(node, "body", ()) if _is_definition(n) and n.name == name), None)
    return node if path else None


def _is_definition(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
