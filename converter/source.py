"""Source files: their definitions, imports, comments, and what each name in them stands for."""

import ast
import importlib.util
import io
import tokenize
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from maxcode.converter.plumbing import DROPPED_COMMENTS, KEPT_PACKAGES

FRAMEWORKS = ("transformers", "diffusers")  # packages whose code may be part of a model that lies elsewhere


@dataclass(frozen=True)
class Comments:
    """Comments of a file by line: those that stand alone, and those that follow code."""

    own_line: dict[int, str] = field(default_factory=dict)
    trailing: dict[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> "Comments":
        """Collect the comments of Python source `text`, without those on what no conversion keeps."""
        comments = cls()
        lines = text.split("\n")
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and not any(t in token.string.lower() for t in DROPPED_COMMENTS):
                line, column = token.start
                alone = not lines[line - 1][:column].strip()
                (comments.own_line if alone else comments.trailing)[line] = token.string
        return comments


class SourceFile:
    """One parsed Python file of the source project."""

    def __init__(self, module: str, path: str, text: str | None = None) -> None:
        self.module, self.path = module, path
        self.text = Path(path).read_text(encoding="utf-8") if text is None else text
        self._parsed = ast.parse(self.text, path)

    @cached_property
    def tree(self) -> ast.Module:
        """The file's syntax tree; statements carry their comments, nodes their file, floats their spelling."""
        lines = self.text.split("\n")
        _Attach(self.comments, lines).block(self._parsed.body, 0, len(lines), is_first=True)
        for node in ast.walk(self._parsed):
            node.file = self
            if isinstance(node, ast.Constant) and isinstance(node.value, float):
                node.text = _spelling(lines, node)
        return self._parsed

    @cached_property
    def comments(self) -> Comments:
        """Every comment of the file."""
        return Comments.read(self.text)

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name -> qualified name, for every import anywhere in the file."""
        names: dict[str, str] = {}
        for node in ast.walk(self._parsed):
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
        return self.outline if self.tree else {}

    @cached_property
    def outline(self) -> dict[str, ast.stmt]:
        """The same for a look at names and bases: cheaper, since nothing is attached to the nodes."""
        found: dict[str, ast.stmt] = {}
        for node in _top_level(self._parsed.body):
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
        if name in self.outline:
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
        located = self.outline(qualified)
        return (located[0], located[0].definitions[located[2]]) if located else None

    def outline(self, qualified: str) -> tuple[SourceFile, ast.stmt, str] | None:
        """As `lookup`, without anything attached to the nodes, and with the definition's own name."""
        module, _, name = qualified.rpartition(".")
        for _ in range(8):
            source = self.file(module) if module else None
            if source is None:
                return None
            if name in source.outline:
                return source, source.outline[name], name
            if name not in source.imports:
                return None
            module, _, name = source.imports[name].rpartition(".")
        return None

    def _locate(self, module: str) -> Path | None:
        if module in self.known_paths:
            return Path(self.known_paths[module])
        for root in (*self.roots, *_installed(module)):
            base = root.joinpath(*module.split("."))
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if candidate.is_file():
                    return candidate
        return None


def _spelling(lines: list[str], node: ast.Constant) -> str | None:
    """A number as the file writes it; None where it runs over several lines."""
    if node.end_lineno != node.lineno:
        return None
    return lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()


def _installed(module: str) -> list[Path]:
    """Where the framework lies that models outside of it import records and helpers from; nothing is imported."""
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top) if top in FRAMEWORKS else None
    return [Path(spec.origin).resolve().parents[1]] if spec and spec.origin else []


def _top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of a module, those under top-level `if`/`try` included (guarded imports and fallbacks)."""
    found = []
    for node in body:
        if isinstance(node, ast.If):
            found += _top_level(node.orelse) + _top_level(node.body)
        elif isinstance(node, ast.Try):
            # What follows the import of an optional package runs where that is installed; a converted model has none.
            found += [] if any(map(_is_optional_import, node.body)) else _top_level(node.body)
            found += [n for handler in node.handlers for n in _top_level(handler.body)]
        else:
            found.append(node)
    return found


_NEEDED = KEPT_PACKAGES | {"torch", *FRAMEWORKS}


def _is_optional_import(node: ast.stmt) -> bool:
    """An import of a package that a model can do without: none of the ones that every conversion has."""
    if isinstance(node, ast.ImportFrom):
        return not node.level and (node.module or "").split(".")[0] not in _NEEDED
    return isinstance(node, ast.Import) and any(alias.name.split(".")[0] not in _NEEDED for alias in node.names)


class _Attach:
    """Give each statement, handler and case its comments.

    `leading` are the lines above it, `trailing` what follows its code (of a compound one: its head), `following` the
    lines after the last statement of a block; `spaced` says that a blank line stands before.
    """

    def __init__(self, comments: Comments, lines: list[str]) -> None:
        self.comments, self.lines = comments, lines

    def block(self, body: list[ast.stmt], start: int, end: int, *, is_first: bool = False) -> int:
        """Attach to a block what stands in the lines after `start` up to `end`; returns the last line that was its own.

        Remarks on the lines between a head and the first block are the head's.
        """
        previous = start
        for index, statement in enumerate(body):
            first = first_line(statement)
            between = range(previous + 1, first)
            # On the lines before a block stand only keywords (`else:  # why`); their remarks belong to what follows.
            statement.leading = self._all(between) if not index and not is_first else self._own(between)
            statement.spaced = any(not self.lines[n - 1].strip() for n in between)
            limit = first_line(body[index + 1]) - 1 if index + 1 < len(body) else end
            previous = self._inside(statement, first, limit)
        return self._following(body[-1], previous, end) if body else start

    def _following(self, statement: ast.stmt, previous: int, end: int) -> int:
        """Lines below the last statement of a block that are indented like it."""
        statement.following = []
        for line in range(previous + 1, end + 1):
            if line not in self.comments.own_line:
                if self.lines[line - 1].strip():
                    break
            elif self._column(line) < statement.col_offset:
                break
            else:
                statement.following.append(self.comments.own_line[line])
                previous = line
        return previous

    def _inside(self, statement: ast.AST, first: int, limit: int) -> int:
        """Comments of one statement and its blocks; returns its last line."""
        parts = _parts(statement)
        if not parts:
            last = statement.end_lineno or first
            statement.leading += self._own(range(first, last + 1))
            statement.trailing = self._trailing(range(first, last + 1))
            statement.remarks = self._remarks(statement)
            return last
        decorators = getattr(statement, "decorator_list", [])
        for decorator in decorators:
            decorator.trailing = self._trailing(range(decorator.lineno, (decorator.end_lineno or 0) + 1))
        head = _header_end(statement)
        body = first_line(parts[0][0])
        statement.leading += self._own(range(first, head + 1))
        statement.trailing = self._trailing(range(statement.lineno if decorators else first, body))
        previous = head
        for index, part in enumerate(parts):
            end = first_line(parts[index + 1][0]) - 1 if index + 1 < len(parts) else limit
            if isinstance(part[0], ast.ExceptHandler | ast.match_case):
                for position, inner in enumerate(part):
                    stop = first_line(part[position + 1]) - 1 if position + 1 < len(part) else end
                    inner.leading = self._own(range(previous + 1, first_line(inner)))
                    previous = self._inside(inner, first_line(inner), stop)
            else:
                previous = self.block(part, previous, end, is_first=index == 0)
        return previous

    def _column(self, line: int) -> int:
        text = self.lines[line - 1]
        return len(text) - len(text.lstrip())

    def _own(self, span: range) -> list[str]:
        return [self.comments.own_line[n] for n in span if n in self.comments.own_line]

    def _trailing(self, span: range) -> str:
        return "  ".join(self.comments.trailing[n] for n in span if n in self.comments.trailing)

    def _remarks(self, statement: ast.stmt) -> list[tuple[str, str]]:
        """The comments that stand beside a keyword argument on a line of its own, with the keyword."""
        lines = {n.lineno: n.arg for n in ast.walk(statement) if isinstance(n, ast.keyword) and n.arg}
        ends = {n.value.end_lineno: n.arg for n in ast.walk(statement) if isinstance(n, ast.keyword) and n.arg}
        found = ((n, self.comments.trailing.get(n)) for n in range(statement.lineno + 1, statement.end_lineno or 0))
        return [(text, (lines | ends)[n]) for n, text in found if text and n in lines | ends]

    def _all(self, span: range) -> list[str]:
        every = self.comments.own_line | self.comments.trailing
        return [every[n] for n in span if n in every]


def _parts(statement: ast.AST) -> list[list]:
    """The blocks of a compound statement in the order of the text; handlers and cases as one part each."""
    names = ("body", "handlers", "orelse", "finalbody", "cases")
    parts = [getattr(statement, name, None) for name in names]
    return [p for p in parts if isinstance(p, list) and p]


def first_line(node: ast.AST) -> int:
    """First line of a statement with its decorators, or of a handler or case."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def _header_end(statement: ast.AST) -> int:
    """Last line of a simple statement, or of the header of a compound one."""
    if isinstance(statement, ast.match_case):
        return (statement.guard or statement.pattern).end_lineno or 0
    if isinstance(statement, ast.Match):
        return statement.subject.end_lineno or 0
    body = getattr(statement, "body", None)
    if not isinstance(body, list) or not body:
        return statement.end_lineno or statement.lineno
    parts = [getattr(statement, n, None) for n in ("test", "iter", "target", "returns", "args", "type")]
    parts += [*getattr(statement, "bases", ()), *getattr(statement, "keywords", ())]
    parts += [p for i in getattr(statement, "items", ()) for p in (i.context_expr, i.optional_vars)]
    ends = [p.end_lineno for p in parts if getattr(p, "end_lineno", None)]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = statement.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *arguments.defaults]
        every += [a for a in (arguments.vararg, arguments.kwarg, *arguments.kw_defaults) if a]
        ends += [a.end_lineno for a in every if a.end_lineno]
    return min(max([statement.lineno, *ends]), first_line(body[0]))
