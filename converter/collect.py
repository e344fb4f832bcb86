"""Find what the entry class reaches: classes, functions and constants, and of classes only the methods used."""

import ast
from typing import Any

from maxcode.converter import capture
from maxcode.converter import plumbing as tables
from maxcode.converter.autograd import METHODS, is_gradient_function
from maxcode.converter.chosen import choose_keywords
from maxcode.converter.context import Context, Definition, attach_facts
from maxcode.converter.library import defines
from maxcode.converter.nodes import blocks, has_fields
from maxcode.converter.optional import absent_names
from maxcode.converter.output_records import is_record
from maxcode.converter.passes.fold import Fold
from maxcode.converter.passes.plumbing import Plumbing
from maxcode.converter.positionals import drop_positionals
from maxcode.converter.registered import plain_classes
from maxcode.converter.source import SourceFile
from maxcode.converter.traced import splice
from maxcode.converter.unrun import Unrun, assume_unrun, is_layers

_ALWAYS = frozenset({"__init__", "forward", "__getitem__", "__len__", "__iter__", "__call__", "__post_init__"})
_TORCH = ("torch.", "torch")


def collect(context: Context) -> None:
    """Fill `context.definitions` in the order of the source: reached files first to last, lines within each file."""
    found: dict[str, Definition] = {}
    attributes: set[str] = set()
    _reach(context, context.entry, found)
    while True:
        before = (len(found), len(attributes))
        for definition in list(found.values()):
            for name in _scan(definition, attributes):
                _reach_name(context, definition.file, name, found)
        if (len(found), len(attributes)) == before:
            break
    for definition in found.values():
        if isinstance(definition.node, ast.ClassDef):
            keeps = has_fields(definition.node)
            definition.node.body = [s for s in definition.node.body if _is_used(s, attributes, keeps)] or [ast.Pass()]
    order = {file: i for i, file in enumerate(_file_order(context, found))}
    context.definitions = sorted(found.values(), key=lambda d: (order[d.file.path], d.node.lineno))
    drop_positionals(context)
    assume_unrun(context)
    capture.attach(context)


def _file_order(context: Context, found: dict[str, Definition]) -> list[str]:
    """Files with the entry's last, imported ones before their importers."""
    ordered: list[str] = []

    def visit(file: SourceFile, stack: tuple[str, ...]) -> None:
        if file.path in ordered or file.path in stack:
            return
        for target in file.imports.values():
            other = context.project.files.get(target.rpartition(".")[0]) or context.project.files.get(target)
            if other is not None and any(d.file is other for d in found.values()):
                visit(other, (*stack, file.path))
        ordered.append(file.path)

    for definition in found.values():
        visit(definition.file, ())
    return ordered


def _reach(context: Context, qualified: str, found: dict[str, Definition]) -> None:
    located = context.project.lookup(qualified)
    if located is None:
        return
    file, node = located
    name = qualified.rpartition(".")[2]
    definition = Definition(name, file, node)
    if definition.qualified in found:
        return
    if not hasattr(file, "prepared"):
        file.prepared = True
        attach_facts(file, context.facts)
        if context.unreached is not None:
            context.unreached.leave_out(context, file)
    splice(context, definition)
    definition.node = _simplified(context, node, absent_names(file))
    found[definition.qualified] = definition


def _simplified(context: Context, node: ast.stmt, absent: dict[str, Any]) -> ast.stmt:
    if is_layers(getattr(getattr(node, "file", None), "module", "")):
        node = Unrun(context).visit(node)
    if isinstance(node, ast.ClassDef):
        plain_classes(context, node)
    node = Plumbing(context, absent).visit(node)
    for _ in range(3):
        node = Fold().visit(node)
    for function in [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]:
        choose_keywords(function)
    if isinstance(node, ast.ClassDef):
        _drop_inert_calls(node)
    return node


def _drop_inert_calls(node: ast.ClassDef) -> None:
    """Drop `self.method()` statements whose method does nothing once initialisation of random weights is taken out."""
    inert = {f.name for f in node.body if isinstance(f, ast.FunctionDef) and f.name not in _ALWAYS and _is_inert(f)}
    for block in blocks(node):
        kept = [s for s in block if not _calls_own(s, inert)]
        if len(kept) != len(block):
            block[:] = kept or [ast.Pass()]
    Fold().visit(node)


def _is_inert(function: ast.FunctionDef) -> bool:
    for child in ast.walk(function):
        if isinstance(child, ast.Return) and child.value is not None:
            return False
        if isinstance(child, ast.Attribute | ast.Subscript) and isinstance(child.ctx, ast.Store):
            return False
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            return False
        if isinstance(child, ast.Raise | ast.Yield | ast.AugAssign | ast.Global | ast.Nonlocal):
            return False
    return True


def _calls_own(statement: ast.stmt, names: set[str]) -> bool:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    function = statement.value.func
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self" and function.attr in names


def _scan(definition: Definition, attributes: set[str]) -> set[str]:
    """Global names that the used parts of a definition refer to; adds the attribute names met to `attributes`."""
    node = definition.node
    names: set[str] = set()
    if is_gradient_function(definition):
        attributes |= METHODS
    if isinstance(node, ast.ClassDef):
        for base in node.bases:
            names |= {n.id for n in ast.walk(base) if isinstance(n, ast.Name)}
        parts: list[ast.AST] = [s for s in node.body if _is_used(s, attributes, has_fields(node))]
    else:
        parts = [node]
    for part in parts:
        for child in _walk_code(part):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                names.add(child.id)
            elif isinstance(child, ast.Attribute):
                attributes.add(child.attr)
    return names


def _walk_code(node: ast.AST) -> list[ast.AST]:
    """All nodes but annotations and docstrings."""
    found, stack = [], [node]
    while stack:
        current = stack.pop()
        found.append(current)
        for name, value in ast.iter_fields(current):
            if name in ("annotation", "returns", "type_comment"):
                continue
            stack += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST)]
    return found


def _is_used(statement: ast.stmt, attributes: set[str], keeps_fields: bool = False) -> bool:
    if isinstance(statement, ast.FunctionDef):
        return statement.name in _ALWAYS or (
            statement.name in attributes and statement.name not in tables.DROPPED_CALLS
        )
    if isinstance(statement, ast.Assign):
        names = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        return bool(names & attributes) or tables.TIED_KEYS in names
    if isinstance(statement, ast.AnnAssign):
        return keeps_fields or (
            statement.value is not None and isinstance(statement.target, ast.Name) and statement.target.id in attributes
        )
    return isinstance(statement, ast.Expr)


def _reach_name(context: Context, file: SourceFile, name: str, found: dict[str, Definition]) -> None:
    qualified = file.qualify(name)
    if qualified is None or qualified.startswith(_TORCH[0]) or qualified == _TORCH[1]:
        return
    if not is_model_code(context, qualified):
        return
    _reach(context, qualified, found)


def is_model_code(context: Context, qualified: str) -> bool:
    """Whether a qualified name is converted, rather than replaced by the support library or kept as an import."""
    if is_record(context, qualified) or qualified.split(".")[0] in tables.KEPT_PACKAGES:
        return False
    if qualified.startswith(tables.FRAMEWORKS):
        short = tables.last(qualified)
        if tables.supported(qualified) or short in tables.PLAIN_CALLS or short in tables.DROPPED_BASES:
            return False
        layers = tables.LAYER_MODULES.get(f"{qualified.split('.')[0]}.")
        if layers is not None:
            return qualified.startswith(layers) and not qualified.startswith(tables.PLUMBING_MODULES)
        parts = qualified.split(".")
        if len(parts) < 4 or parts[1] != "models":
            return _is_generic_head(context, qualified) or _is_free_function(context, qualified)
        return parts[2] != "auto" and not parts[3].startswith("configuration_")
    return context.project.outline(qualified) is not None


def _is_generic_head(context: Context, qualified: str) -> bool:
    """Whether a class of the framework gives a model's class its `forward`: heads that many models share."""
    inherited = (row.get("mro", ())[1:] for row in context.facts.get("classes", {}).values())
    if not any(qualified in bases for bases in inherited):
        return False
    located = context.project.outline(qualified)
    body = located[1].body if located is not None and isinstance(located[1], ast.ClassDef) else ()
    return any(isinstance(s, ast.FunctionDef) and s.name == "forward" for s in body)


def _is_free_function(context: Context, qualified: str) -> bool:
    """Whether a function of the framework that nothing stands for computes with tensors or numbers alone."""
    located = context.project.outline(qualified)
    if located is None or not isinstance(located[1], ast.FunctionDef) or located[1].decorator_list:
        return False
    home = tables.namesake(f"{located[0].module}.{located[2]}")
    if home is not None and defines(home, located[2]):
        return False
    return located[0].module.partition(".")[2] in tables.FUNCTION_MODULES
