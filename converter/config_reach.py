"""Find what a configuration class needs: the classes, constants and functions that it reaches, in executable order."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maxcode.converter.config_fields import DROPPED_ATTRIBUTES, DROPPED_METHODS, targets
from maxcode.converter.source import Project, SourceFile

# The framework's own names -> (support module, name there) of their counterpart.
SUPPORT = {
    "PreTrainedConfig": ("pretrained_config", "PreTrainedConfig"),
    "PretrainedConfig": ("pretrained_config", "PreTrainedConfig"),
    "SubConfigSpec": ("pretrained_config", "SubConfigSpec"),
}
_CLASS_BY_TYPE, _TABLE = "AutoConfig", "CONFIG_MAPPING"  # the framework's choice of a class by `model_type`
_NESTED = ("sub_configs_defaults", "sub_configs")
_KEPT_PACKAGES = frozenset({*sys.stdlib_module_names, "numpy"}) - {"__future__"}


class ConfigError(ValueError):
    """A configuration class that cannot be converted; says which and why."""


@dataclass
class Reached:
    """Definitions, dependencies first, and what else the emitted module needs."""

    order: list[tuple[SourceFile, ast.stmt]] = field(default_factory=list)
    configs: set[str] = field(default_factory=set)  # names of configuration classes
    imports: set[str] = field(default_factory=set)  # import statements
    names: set[str] = field(default_factory=set)  # what they bind
    by_type: dict[str, str] = field(default_factory=dict)  # model_type -> class name
    uses_table: bool = False

    @property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The reached classes by name."""
        return {node.name: node for _, node in self.order if isinstance(node, ast.ClassDef)}


class Collector:
    """Walks definitions from the entry class; `resolved` is the full dictionary of the configuration at hand."""

    def __init__(self, project: Project, resolved: Mapping[str, Any]) -> None:
        self.project, self.resolved, self.reached = project, resolved, Reached()
        self._seen: set[tuple[str, str]] = set()

    def reach(self, file: SourceFile, name: str, *, is_config: bool = False) -> None:
        """Add the definition of `name` in `file` and all that it needs."""
        if (file.module, name) in self._seen:
            return
        self._seen.add((file.module, name))
        node = file.definitions[name]
        if not isinstance(node, ast.ClassDef):
            self._names(file, _use_standard_logging(node))
            self.reached.order.append((file, node))
            return
        self._class_level(file, node, is_config)
        self.reached.order.append((file, node))
        for method in (s for s in node.body if isinstance(s, ast.FunctionDef)):
            self._names(file, method)  # run later, so what they use may stand below

    def _class_level(self, file: SourceFile, node: ast.ClassDef, is_config: bool) -> None:
        for base in node.bases:
            self._names(file, base)
        bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
        is_dataclass = any("dataclass" in ast.unparse(d) for d in node.decorator_list)
        if is_config or is_dataclass or bases & (self.reached.configs | set(SUPPORT)):
            self.reached.configs.add(node.name)
        for statement in node.body:
            if any(isinstance(t, ast.Name) and t.id in _NESTED for t in targets(statement)):
                self._nested(file, statement)
            if not isinstance(statement, ast.FunctionDef):
                self._names(file, statement)

    def _names(self, file: SourceFile, node: ast.AST) -> None:
        for name in _used_names(node):
            self._name(file, name)
        for annotation in _annotations(node):
            for name in (n.id for n in ast.walk(annotation) if isinstance(n, ast.Name)):
                self._import(file, name)  # other types in annotations are left out

    def _name(self, file: SourceFile, name: str) -> None:
        qualified = file.qualify(name)
        if qualified is None or self._import(file, name):
            return
        last = qualified.split(".")[-1]
        if last == _TABLE:
            self._use_table(file)
        elif last == _CLASS_BY_TYPE or (file.definitions.get(name) is None and self._is_framework_logging(qualified)):
            return
        elif (found := self.project.lookup(qualified)) is not None:
            self.reach(found[0], last)
        else:
            raise ConfigError(
                f"{file.path}: a configuration class uses {name!r} ({qualified}), which is neither in its project nor "
                "in the standard library; set the value in the configuration instead"
            )

    def _import(self, file: SourceFile, name: str) -> bool:
        """Keep an import from the standard library or the support modules; False for anything else."""
        qualified = None if name in file.definitions else file.imports.get(name)
        if qualified is None:
            return False
        last = qualified.split(".")[-1]
        if last in SUPPORT:
            module, name = SUPPORT[last]
            text = f"from .{module} import {name}"
        elif qualified.split(".")[0] in _KEPT_PACKAGES:
            text = _import_text(file, name)
        else:
            return False
        self.reached.imports.add(text)
        self.reached.names.add(name)
        return True

    def _is_framework_logging(self, qualified: str) -> bool:
        if qualified.split(".")[-1] != "logging":
            return False
        self.reached.imports.add("import logging")
        return True

    def _nested(self, file: SourceFile, statement: ast.stmt) -> None:
        """Put the classes that can occur in place of the framework's choice by type."""
        if not isinstance(statement.value, ast.Dict):
            return
        values = statement.value.values
        for position, (key, value) in enumerate(zip(statement.value.keys, values)):
            if key is None or _CLASS_BY_TYPE not in ast.unparse(value):
                continue
            defaults = [k.value.value for k in getattr(value, "keywords", []) if k.arg == "model_type"]
            kinds = sorted({*defaults, *_types_at(self.resolved, key.value)})
            classes = [self._class_of_type(file, kind) for kind in kinds]
            table = ast.Dict([ast.Constant(kind) for kind in kinds], [ast.Name(name) for name in classes])
            values[position] = _Replace(_CLASS_BY_TYPE, table).visit(value)

    def _use_table(self, file: SourceFile) -> None:
        self.reached.uses_table = True
        self.reached.names.add(_TABLE)
        for kind in sorted(set(_types_at(self.resolved, None)) - {self.resolved.get("model_type")}):
            self._class_of_type(file, kind)

    def _class_of_type(self, file: SourceFile, kind: str) -> str:
        """Reach the class whose `model_type` is `kind`, looked for in the sibling packages of the entry."""
        models = Path(next(iter(self.project.files.values())).path).parent.parent
        package = next(iter(self.project.files)).rpartition(".")[0].rpartition(".")[0]
        pattern = re.compile(rf"^\s+model_type(?:: \S+)? = [\"']{re.escape(kind)}[\"']", re.MULTILINE)
        for path in sorted(models.glob("*/configuration_*.py")):
            if not pattern.search(path.read_text(encoding="utf-8")):
                continue
            found = self.project.file(f"{package}.{path.parent.name}.{path.stem}")
            for node in found.tree.body if found else ():
                if isinstance(node, ast.ClassDef) and pattern.search(found_text(found, node)):
                    self.reach(found, node.name, is_config=True)
                    self.reached.by_type[kind] = node.name
                    return node.name
        raise ConfigError(f"{file.path}: no configuration class with model_type {kind!r} in {models}")


def found_text(file: SourceFile, node: ast.ClassDef) -> str:
    """The source lines of a class."""
    return "\n".join(file.text.splitlines()[node.lineno - 1 : node.end_lineno])


def _types_at(resolved: Any, key: str | None) -> Iterator[str]:
    """Every `model_type` of a dictionary stored under `key` (None: anywhere) in the resolved configuration."""
    for name, value in resolved.items() if isinstance(resolved, Mapping) else ():
        if isinstance(value, Mapping):
            if key in (None, name) and value.get("model_type"):
                yield value["model_type"]
            yield from _types_at(value, key)


def _used_names(node: ast.AST) -> list[str]:
    """Names that the emitted form of `node` reads: no annotations, framework decorators or validators of fields."""
    if isinstance(node, ast.FunctionDef):
        if node.name in DROPPED_METHODS:
            return []
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        return [name for part in (*defaults, *node.body) for name in _used_names(part)]
    if isinstance(node, ast.AnnAssign):
        value = node.value
        if isinstance(value, ast.Call) and {k.arg for k in value.keywords} & {"default", "default_factory"}:
            return [name for keyword in value.keywords for name in _used_names(keyword.value)]
        return [] if value is None else _used_names(value)
    if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id in DROPPED_ATTRIBUTES for t in node.targets
    ):
        return []
    found = [node.id] if isinstance(node, ast.Name) else []
    return found + [name for child in ast.iter_child_nodes(node) for name in _used_names(child)]


def _annotations(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.FunctionDef) and node.name in DROPPED_METHODS:
        return []
    found = [n.annotation for n in ast.walk(node) if isinstance(n, ast.AnnAssign | ast.arg) and n.annotation]
    return found + [n.returns for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n.returns]


def _use_standard_logging(node: ast.stmt) -> ast.stmt:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr == "get_logger":
            part.attr = "getLogger"
    return node


def _import_text(file: SourceFile, name: str) -> str:
    """The import statement that binds `name` alone."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name.split(".")[0]):
                    suffix = f" as {alias.asname}" if alias.asname else ""
                    prefix = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                    return f"{prefix}import {alias.name}{suffix}"
    raise ConfigError(f"{file.path}: {name!r} is not imported")


class _Replace(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node
