"""Source files: their definitions, imports, comments, and what each name in them stands for."""

import ast
import io
import tokenize
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Comments:
    """Comments of a file by line: those that stand alone, and those that follow code."""

    own_line: dict[int, str] = field(default_factory=dict)
    trailing: dict[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> "Comments":
        """Collect the comments of Python source `text`."""
        comments = cls()
        lines = text.splitlines()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                alone = not lines[line - 1][:column].strip()
                (comments.own_line if alone else comments.trailing)[line] = token.string
        return comments


class SourceFile:
    """One parsed Python file of the source project."""

    def __init__(self, module: str, path: str, text: str | None = None) -> None:
        self.module, self.path = module, path
        self.text = Path(path).read_text(encoding="utf-8") if text is None else text
        self.tree = ast.parse(self.text, path)
        self.comments = Comments.read(self.text)
        _attach_comments(self.tree, self.comments, self.text.splitlines())
        for node in ast.walk(self.tree):
            node.file = self
            if isinstance(node, ast.Constant) and isinstance(node.value, float):
                node.text = ast.get_source_segment(self.text, node)

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name -> qualified name, for every import anywhere in the file."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    target = alias.name if alias.asname else alias.name.split(".")[0]
                    names[alias.asname or target] = target
            elif isinstance(node, ast.ImportFrom):
                base = self._import_base(node)
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{base}.{alias.name}"
        return names

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """Top-level classes, functions and constants by name; the last definition of a name wins, as in Python."""
        found: dict[str, ast.stmt] = {}
        for node in _top_level(self.tree.body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                found[node.target.id] = node
        return found

    def qualify(self, name: str) -> str | None:
        """Qualified name of a global `name`: its own definition or import; None for builtins and locals."""
        if name in self.definitions:
            return f"{self.module}.{name}"
        return self.imports.get(name)

    @property
    def license_header(self) -> str:
        """The comment block with the copyright notice at the top of the file, without the generator's banner."""
        lines = []
        for line in self.text.splitlines():
            if not line.startswith("#") and line.strip():
                break
            lines.append(line.rstrip())
        starts = [i for i, line in enumerate(lines) if "copyright" in line.lower() or "license" in line.lower()]
        return "\n".join(lines[starts[0] :]).strip() if starts else ""

    def _import_base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        package = parts if Path(self.path).name == "__init__.py" else parts[:-1]
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else [])])


class Project:
    """Finds and parses the source files that a conversion reaches, by module name."""

    def __init__(self, entry_module: str, entry_path: str, known_paths: dict[str, str] | None = None) -> None:
        self.files: dict[str, SourceFile | None] = {}
        self.known_paths = known_paths or {}
        depth = entry_module.count(".") + (1 if Path(entry_path).name == "__init__.py" else 0)
        self.roots = [Path(entry_path).resolve().parents[depth]]
        self.files[entry_module] = SourceFile(entry_module, entry_path)

    def file(self, module: str) -> SourceFile | None:
        """The parsed file of `module`, or None when it is not found beside the entry."""
        if module not in self.files:
            path = self._locate(module)
            self.files[module] = SourceFile(module, str(path)) if path else None
        return self.files[module]

    def lookup(self, qualified: str) -> tuple[SourceFile, ast.stmt] | None:
        """The definition of a qualified name, following re-exports; None when it is no top-level definition."""
        module, _, name = qualified.rpartition(".")
        for _ in range(8):
            source = self.file(module) if module else None
            if source is None:
                return None
            if name in source.definitions:
                return source, source.definitions[name]
            if name not in source.imports:
                return None
            module, _, name = source.imports[name].rpartition(".")
        return None

    def _locate(self, module: str) -> Path | None:
        if module in self.known_paths:
            return Path(self.known_paths[module])
        for root in self.roots:
            base = root.joinpath(*module.split("."))
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if candidate.is_file():
                    return candidate
        return None


def _top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of a module, those under top-level `if`/`try` included (guarded imports and fallbacks)."""
    found = []
    for node in body:
        if isinstance(node, ast.If):
            found += _top_level(node.orelse) + _top_level(node.body)
        elif isinstance(node, ast.Try):
            found += _top_level(node.body)
            found += [n for handler in node.handlers for n in _top_level(handler.body)]
        else:
            found.append(node)
    return found


def _attach_comments(tree: ast.Module, comments: Comments, lines: list[str]) -> None:
    """Give each statement `leading` (comment lines), `trailing` (comment after code) and `spaced` (a blank line before it)."""
    for parent in ast.walk(tree):
        for block in _blocks(parent):
            previous_end = _block_start(parent, block)
            for statement in block:
                first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
                between = range(previous_end + 1, first)
                statement.leading = [comments.own_line[n] for n in between if n in comments.own_line]
                statement.spaced = any(not lines[n - 1].strip() for n in between)
                last = _header_end(statement)
                notes = [comments.trailing[n] for n in range(first, last + 1) if n in comments.trailing]
                inner = [comments.own_line[n] for n in range(first, last + 1) if n in comments.own_line]
                statement.leading += inner
                statement.trailing = "  ".join(notes)
                previous_end = statement.end_lineno or first


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    return [
        block
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list) and block and isinstance(block[0], ast.stmt)
    ]


def _block_start(parent: ast.AST, block: list[ast.stmt]) -> int:
    if isinstance(parent, ast.Module):
        return 0
    if block is getattr(parent, "body", None):
        return _header_end(parent)
    return block[0].lineno - 1


def _header_end(statement: ast.AST) -> int:
    """Last line of a simple statement, or of the header of a compound one."""
    if isinstance(statement, ast.match_case):
        return statement.pattern.end_lineno or 0
    body = getattr(statement, "body", None)
    if not isinstance(body, list) or not body:
        return statement.end_lineno or statement.lineno
    parts = [getattr(statement, n, None) for n in ("test", "iter", "target", "returns", "args")]
    ends = [p.end_lineno for p in parts if getattr(p, "end_lineno", None)]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = statement.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *arguments.defaults]
        every += [a for a in (arguments.vararg, arguments.kwarg, *arguments.kw_defaults) if a]
        ends += [a.end_lineno for a in every if a.end_lineno]
    return min(max([statement.lineno, *ends]), body[0].lineno)
