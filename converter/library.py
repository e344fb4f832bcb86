"""The support library as text: its modules, the classes in them, and the keywords that their constructors take."""

import ast
import functools
from pathlib import Path

from maxcode.converter import plumbing as tables

SUPPORT = Path(__file__).parent / "support"


@functools.cache
def support_library() -> dict[str, str]:
    """Text of every support module by name."""
    return {path.stem: path.read_text() for path in sorted(SUPPORT.glob("*.py"))}


@functools.cache
def _defined_names(module: str) -> frozenset[str]:
    tree = ast.parse(support_library()[module])
    found = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    found |= {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    found |= {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) and n.level for a in n.names}
    return frozenset(found)


def defines(module: str, name: str) -> bool:
    """Whether a support module defines or re-exports `name`."""
    return module in support_library() and name in _defined_names(module)


@functools.cache
def function_parameters(module: str, name: str) -> tuple[str, ...]:
    """Parameters of a support module's function, in order; none when it defines no such function."""
    for node in ast.parse(support_library().get(module, "")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return tuple(a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
    return ()


@functools.cache
def _support_classes() -> dict[str, tuple[str, frozenset[str]]]:
    """Support class -> (its module, keyword-only arguments of its constructor), read from the library's text."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    bases: dict[str, str] = {}
    for path in sorted(SUPPORT.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef):
                continue
            constructor = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
            if constructor is not None:
                found[node.name] = (path.stem, frozenset(a.arg for a in constructor.args.kwonlyargs))
            elif node.bases:
                bases[node.name] = ast.unparse(node.bases[0])
                found[node.name] = (path.stem, frozenset({"?"}))
    for cls, base in bases.items():
        while base in bases:
            base = bases[base]
        found[cls] = (found[cls][0], found.get(base, ("", frozenset()))[1])
    return found


def support_keywords(cls: str) -> frozenset[str]:
    return _support_classes().get(tables.last(cls), ("", frozenset()))[1]


def support_module(cls: str) -> str | None:
    """The support module that defines a class."""
    entry = _support_classes().get(cls)
    return entry[0] if entry else None
