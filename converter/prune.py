"""Copy support modules into a package, keeping only what is reached from the package's own files."""

import ast
import functools

from maxcode.converter.emit import format_text


def prune(library: dict[str, str], files: dict[str, str], roots: dict[str, set[str] | None]) -> dict[str, str]:
    """Text of the needed support modules by file name.

    Args:
      library: support module -> text.
      files: the package's own files, whose relative imports say what is needed.
      roots: support modules needed beside those: the names needed of each, or None for the whole module.
    """
    wanted: dict[str, set[str]] = {}
    modules = {name: _module(name, text) for name, text in library.items()}
    for text in files.values():
        _want_imports(ast.parse(text), modules, wanted)
    for name, names in roots.items():
        wanted.setdefault(name, set()).update(modules[name].definitions if names is None else names)
    done: dict[str, frozenset[str]] = {}
    while True:
        pending = {n: frozenset(w) for n, w in wanted.items() if done.get(n) != frozenset(w)}
        if not pending:
            break
        for name in pending:
            done[name] = frozenset(wanted[name])
            kept = modules[name].closure(wanted[name])
            for node in kept:
                _want_imports(node, modules, wanted)
            _want_used_imports(modules[name], kept, modules, wanted)
    return {f"{name}.py": format_text(modules[name].text(wanted[name]), f"{name}.py") for name in sorted(wanted)}


@functools.cache
def _module(name: str, text: str) -> "_Module":
    return _Module(name, text)


class _Module:
    """A support module's text, cut into top-level pieces."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.definitions: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            for name in _defined(node):
                self.definitions[name] = node

    def closure(self, names: set[str]) -> list[ast.stmt]:
        """Statements that define `names`, and those they need within the module; effects and `__all__` aside."""
        kept: list[ast.stmt] = [n for n in self.tree.body if _has_effect(n)]
        pending = [self.definitions[n] for n in sorted(names) if n in self.definitions]
        for node in kept:
            pending += [self.definitions[n] for n in _names(node) if n in self.definitions]
        while pending:
            node = pending.pop()
            if node in kept:
                continue
            kept.append(node)
            pending += [
                self.definitions[n] for n in _names(node) if n in self.definitions and self.definitions[n] not in kept
            ]
        return sorted(kept, key=lambda n: n.lineno)

    def text(self, names: set[str]) -> str:
        """The module with everything else cut out; imports stay and are pruned by the formatter.

        Names that others import from here but that come from elsewhere are listed in `__all__`, with the module's own.
        """
        passed_on = {n for n in names if n not in self.definitions}
        kept = {id(n) for n in self.closure(names)}
        out: list[str] = []
        listed: list[str] = []
        previous = 0
        for node in self.tree.body:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            is_doc = node is self.tree.body[0] and isinstance(node, ast.Expr)
            if isinstance(node, ast.ImportFrom) and node.level and any(a.name in passed_on for a in node.names):
                again = [a.name for a in node.names]
                out.append(f"from {'.' * node.level}{node.module or ''} import {', '.join(again)}")
                listed = [f"__all__ = {sorted(names)!r}"]
            elif is_import or is_doc or id(node) in kept:
                if listed and not is_import:
                    out += ["", *listed]
                    listed = []
                out += self.lines[_comment_start(self.lines, previous, first) : node.end_lineno]
            previous = node.end_lineno or first
        return "\n".join([*out, *listed]) + "\n"


def _comment_start(lines: list[str], previous: int, first: int) -> int:
    start = first - 1
    while start > previous and (lines[start - 1].startswith("#") or not lines[start - 1].strip()):
        start -= 1
    return start


def home(library: dict[str, str], module: str, name: str) -> str:
    """The support module that defines `name`, following re-exports from `module`."""
    for _ in range(4):
        if module not in library:
            break
        found = None
        for node in ast.parse(library[module]).body:
            if name in _defined(node):
                return module
            if (
                isinstance(node, ast.ImportFrom)
                and node.level == 1
                and node.module
                and any(a.name == name for a in node.names)
            ):
                found = node.module
        if found is None:
            break
        module = found
    return module


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        names = [
            n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        ]
        return [n for n in names if n != "__all__"]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _has_effect(node: ast.stmt) -> bool:
    """Whether a statement does something at import (a registration call) beside defining a name."""
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return called or isinstance(node, ast.If | ast.Try | ast.For)


@functools.cache
def _names(node: ast.AST) -> frozenset[str]:
    """Identifiers below a node of a support module, those in strings (annotations, `getattr`) too."""
    return frozenset(
        {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        | {
            w
            for n in ast.walk(node)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and (w := n.value).isidentifier()
        }
    )


def _want_imports(tree: ast.AST, modules: dict[str, _Module], wanted: dict[str, set[str]]) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            if node.module is None:
                for alias in node.names:
                    if alias.name in modules:
                        wanted.setdefault(alias.name, set()).update(
                            _attributes(tree, alias.asname or alias.name, modules[alias.name])
                        )
            elif node.module in modules:
                wanted.setdefault(node.module, set()).update(a.name for a in node.names)


def _attributes(tree: ast.AST, name: str, module: _Module) -> set[str]:
    """Names of a module that are read as `module.x`; all of them when the module is handed about whole."""
    used = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name
    }
    return used & set(module.definitions)


def _want_used_imports(
    module: _Module, kept: list[ast.stmt], modules: dict[str, _Module], wanted: dict[str, set[str]]
) -> None:
    """Follow the module's top-level relative imports whose names the kept statements use."""
    used = set().union(*(_names(n) for n in kept)) if kept else set()
    for node in module.tree.body:
        if not (isinstance(node, ast.ImportFrom) and node.level == 1):
            continue
        for alias in node.names:
            local = alias.asname or alias.name
            if local not in used and local not in wanted.get(module.name, ()):
                continue
            if node.module is None and alias.name in modules:
                holder = ast.Module(kept, [])
                wanted.setdefault(alias.name, set()).update(_attributes(holder, local, modules[alias.name]))
            elif node.module in modules:
                wanted.setdefault(node.module, set()).add(alias.name)
