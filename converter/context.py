"""What every pass shares: the project, the facts, and what has been decided so far."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from maxcode.converter.facts import MISSING, Fact
from maxcode.converter.library import support_module
from maxcode.converter.source import Project, SourceFile

if TYPE_CHECKING:
    from maxcode.converter.unreached import Unreached

TENSORS = frozenset({"tensor", "param"})


class ConversionError(ValueError):
    """A pass broke what an earlier one had ensured: a fault of the converter, not of the source."""


@dataclass
class Gap:
    """A place that is not converted: never guessed, always reported."""

    code: str
    file: str
    line: int
    torch_name: str
    reason: str
    hint: str = ""
    column: int = field(default=0, compare=False)  # one gap a line is enough to read


@dataclass
class Assumption:
    """A narrowing of generality that the source does not have, with where it was made."""

    file: str
    line: int
    text: str


@dataclass
class Definition:
    """One reached class, function or constant of the source."""

    name: str
    file: SourceFile
    node: ast.stmt

    @property
    def qualified(self) -> str:
        """Dotted name in the source."""
        return f"{self.file.module}.{self.name}"

    def qualified_base(self, base: ast.expr) -> str:
        """The dotted name of one of its base classes, as the file's imports give it."""
        root, _, rest = ast.unparse(base).partition(".")
        qualified = self.file.qualify(root) or root
        return f"{qualified}.{rest}" if rest else qualified

    @property
    def is_class(self) -> bool:
        """Whether it is a class."""
        return isinstance(self.node, ast.ClassDef)

    def functions(self) -> Iterator[ast.FunctionDef]:
        """The function itself, or the methods of the class."""
        if isinstance(self.node, ast.FunctionDef):
            yield self.node
        elif isinstance(self.node, ast.ClassDef):
            yield from (n for n in self.node.body if isinstance(n, ast.FunctionDef))


@dataclass
class Context:
    """State of one conversion; passes read the facts and add to the rest."""

    project: Project
    facts: dict
    entry: str
    definitions: list[Definition] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    support: dict[str, set[str]] = field(default_factory=dict)  # support module -> names imported from it
    helpers: set[str] = field(default_factory=set)  # op helpers to vendor in ops.py
    imports: set[str] = field(default_factory=set)  # import statements that converted text needs
    records: dict[str, tuple[SourceFile, ast.ClassDef]] = field(default_factory=dict)  # output record classes used
    external: dict[str, str] = field(default_factory=dict)  # local name -> import statement kept from the source
    config_classes: frozenset[str] = frozenset()  # classes that the package's config.py defines
    is_program: bool = False  # whether the definitions run on the host, around compiled steps
    provided: frozenset[str] = frozenset()  # names that another file of the package, or of this conversion, defines
    unreached: "Unreached | None" = None  # places that are left out, since no run came to them
    _children: dict[str, dict[str, set[str]]] = field(default_factory=dict)  # class -> attribute -> classes

    @property
    def is_plain(self) -> bool:
        """Whether the model is built from arguments, without a framework's configuration; `.to` sets its dtypes."""
        return not self.facts.get("config_file")

    @cached_property
    def run_name(self) -> str:
        """Parameter and attribute that carry how to run (dtypes, precision): `config`, unless the source means its own.

        A framework's configuration has those fields; an object that a plain module calls `config` does not.
        """
        if not self.is_plain:
            return "config"
        nodes = [n for d in self.definitions if d.is_class for n in ast.walk(d.node)]
        own = any(isinstance(n, ast.arg) and n.arg == "config" for n in nodes)
        own |= any(isinstance(n, ast.Attribute) and n.attr == "config" for n in nodes)
        return "run_config" if own else "config"

    @cached_property
    def built(self) -> set[str]:
        """Qualified names of everything that some run called, and of the module classes that it made."""
        rows = (row[4] for rows in self.facts.get("files", {}).values() for row in rows)
        return {name for row in rows for name in row.get("callee", ())} | set(self.facts.get("classes", {}))

    def use(self, module: str, name: str) -> ast.Name:
        """Import `name` from the support module and return a reference to it."""
        self.support.setdefault(module, set()).add(name)
        return ast.Name(name, ast.Load())

    def distinct(self, expression: ast.expr) -> ast.expr:
        """A support class by its name, or by its module's where a class of the source has the same name."""
        if not isinstance(expression, ast.Name) or all(d.name != expression.id for d in self.definitions):
            return expression
        module = support_module(expression.id)
        if module is None:
            return expression
        self.imports.add(f"from . import {module}")
        return ast.Attribute(ast.Name(module, ast.Load()), expression.id, ast.Load())

    def gap(self, code: str, node: ast.AST, torch_name: str, reason: str, hint: str = "") -> None:
        """Record a gap at `node`, once."""
        gap = Gap(code, path_of(node), getattr(node, "lineno", 0), torch_name, reason, hint)
        gap.column = getattr(node, "col_offset", 0)
        if gap not in self.gaps:
            self.gaps.append(gap)

    def assume(self, node: ast.AST, text: str) -> None:
        """Record an assumption at `node`, once."""
        assumption = Assumption(path_of(node), getattr(node, "lineno", 0), text)
        if assumption not in self.assumptions:
            self.assumptions.append(assumption)

    def definition(self, qualified: str) -> Definition | None:
        """The reached definition of that name."""
        return next((d for d in self.definitions if d.qualified == qualified), None)

    @cached_property
    def entry_forward(self) -> str:
        """The reached class whose `forward` the entry runs: itself, or the nearest it inherits from."""
        for qualified in (self.entry, *self.facts.get("classes", {}).get(self.entry, {}).get("mro", ())):
            definition = self.definition(qualified)
            if definition is not None and any(f.name in ("forward", "__call__") for f in definition.functions()):
                return qualified
        return self.entry

    def class_facts(self, qualified: str) -> dict:
        """Attribute kinds of the instances of a class, by the instrumented run; empty when none was built."""
        return self.facts.get("classes", {}).get(qualified, {}).get("attributes", {})

    def child_classes(self, qualified: str) -> dict[str, set[str]]:
        """Classes of the modules that instances of a class hold, by attribute, as the run built them."""
        if not self._children:
            tree = self.facts.get("tree", {})
            for fqn, row in tree.items():
                owner, _, attr = fqn.rpartition(".")
                if fqn and owner in tree:
                    self._children.setdefault(tree[owner]["class"], {}).setdefault(attr, set()).add(row["class"])
        return self._children.get(qualified, {})


def path_of(node: ast.AST) -> str:
    """Path of the file a node was parsed from; "" for made nodes."""
    file = getattr(node, "file", None)
    return file.path if file else ""


def attach_facts(file: SourceFile, facts: dict) -> None:
    """Put `.seen` (raw record) and `.fact` on the expressions of `file` that the instrumented run reached."""
    sites = {tuple(row[:4]): row[4] for row in facts.get("files", {}).get(file.path, ())}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.expr):
            record = sites.get((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset))
            if record is not None and (isinstance(node, ast.Call) or "callee" not in record):
                node.seen = record
                node.fact = _fact(record)


def _fact(record: dict) -> Fact:
    kinds = set(record.get("kinds", ()))
    kind = next(iter(kinds)) if len(kinds) == 1 else "unknown"
    if kinds and kinds <= TENSORS:
        kind = "param" if kinds == {"param"} else "tensor"
    kind = {"record": "unknown", "complex": "unknown"}.get(kind, kind)
    literals = record.get("literals", ())
    constant = len(literals) == 1 and kind in ("int", "float", "bool", "str", "none")
    callees = record.get("callee", ())
    return Fact(
        kind=kind,
        dtypes=frozenset(record.get("dtypes", ())),
        ndims=frozenset(record.get("ndims", ())),
        shapes=tuple(tuple(s) for s in record.get("shapes", ())),
        callee=callees[0] if len(callees) == 1 else None,
        literal=literals[0] if constant else MISSING,
    )


def seen(node: ast.AST) -> dict:
    """The raw record of the run at a node; empty when it was never evaluated."""
    return getattr(node, "seen", None) or {}


def kinds(node: ast.AST) -> frozenset[str]:
    """Kinds seen at a node."""
    return frozenset(seen(node).get("kinds", ()))


def callees(node: ast.AST) -> tuple[str, ...]:
    """Qualified names that were called at a Call node."""
    return tuple(seen(node).get("callee", ()))


def copy_facts(new: ast.AST, old: ast.AST) -> ast.AST:
    """Give a replacement node the facts, position and file of the node it stands for."""
    for name in ("seen", "fact", "file"):
        if hasattr(old, name) and not hasattr(new, name):
            setattr(new, name, getattr(old, name))
    return ast.copy_location(new, old) if hasattr(old, "lineno") else new


def broken(node: ast.AST, text: str) -> str:
    """A message of an `ensures` check: file, line and what still stands there."""
    return f"{path_of(node)}:{getattr(node, 'lineno', 0)}: {text}: {ast.unparse(node).splitlines()[0][:80]!r}"
