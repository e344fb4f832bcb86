"""Tell apart what several source files call by the same name: a package has one file for all of them.

A model that is put together from others meets functions such as `rotate_half` more than once. Equal ones are kept once;
of different ones the entry's own file keeps the name, the others get their file's name in front.
"""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import unchanged
from maxcode.converter.nodes import stored

_FILE_PREFIX = "modeling_"


def tell_apart(context: Context) -> None:
    """Rename or drop definitions until every name stands for one thing."""
    homes = _homes(context)
    while True:
        groups: dict[str, list[Definition]] = {}
        for definition in context.definitions:
            groups.setdefault(_name(definition), []).append(definition)
        shared = [group for group in groups.values() if len(group) > 1]
        if not shared:
            return
        for group in shared:
            _settle(context, group, homes)


def _homes(context: Context) -> dict[str, Definition]:
    return {d.qualified: d for d in context.definitions}


def _settle(context: Context, group: list[Definition], homes: dict[str, Definition]) -> None:
    """One definition of a name keeps it: the entry file's, else the last; its equals go, the others are renamed."""
    entry = context.definitions[-1].file
    keeper = next((d for d in group if d.file is entry), group[-1])
    for definition in group:
        if definition is keeper:
            continue
        if _text(definition) == _text(keeper) and _reads_same(definition, keeper, homes):
            context.definitions.remove(definition)
            homes[definition.qualified] = keeper
        else:
            _rename(context, definition, homes)


def _rename(context: Context, definition: Definition, homes: dict[str, Definition]) -> None:
    old, new = _name(definition), _longer(definition)
    for reader in context.definitions:
        if homes.get(reader.file.qualify(old) or _own(reader, old)) is definition and old not in _bound(reader):
            for node in ast.walk(reader.node):
                if isinstance(node, ast.Name) and node.id == old:
                    node.id = new
                elif isinstance(node, ast.Constant) and node.value == old and definition.is_class:
                    node.value = new  # named in a marker, as the classes of layers are whose outputs count
    if isinstance(definition.node, ast.ClassDef | ast.FunctionDef):
        definition.node.name = new


def _own(reader: Definition, name: str) -> str:
    return f"{reader.file.module}.{name}"


def _longer(definition: Definition) -> str:
    stem = definition.file.module.rpartition(".")[2].removeprefix(_FILE_PREFIX)
    if definition.is_class:
        return "".join(part[:1].upper() + part[1:] for part in stem.split("_")) + _name(definition)
    return f"{stem.upper()}_{_name(definition)}" if _name(definition).isupper() else f"{stem}_{_name(definition)}"


def _name(definition: Definition) -> str:
    """The name as it stands now."""
    node = definition.node
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return next((t.id for t in targets if isinstance(t, ast.Name)), definition.name)


def _text(definition: Definition) -> str:
    return ast.unparse(_without_docstring(definition.node))


def _without_docstring(node: ast.stmt) -> ast.stmt:
    if not isinstance(node, ast.ClassDef | ast.FunctionDef) or ast.get_docstring(node) is None:
        return node
    shown = type(node)(**dict(ast.iter_fields(node)))
    shown.body = node.body[1:] or [ast.Pass()]
    return ast.copy_location(shown, node)


def _reads_same(one: Definition, other: Definition, homes: dict[str, Definition]) -> bool:
    """Whether the names in two equal texts stand for the same definitions."""
    names = {n.id for n in ast.walk(one.node) if isinstance(n, ast.Name)} - _bound(one)
    for name in names - {_name(one)}:
        found = [homes.get(d.file.qualify(name) or "") for d in (one, other)]
        if found[0] is not found[1]:
            return False
    return True


def _bound(definition: Definition) -> set[str]:
    """Names that a definition binds itself, at its own level or in its functions."""
    found = {a.arg for a in ast.walk(definition.node) if isinstance(a, ast.arg)}
    for function in definition.functions():
        found |= set(stored(function.body))
    return found


def ensures(context: Context, definition: Definition) -> list[str]:
    """No other definition has this one's name."""
    others = [d for d in context.definitions if d is not definition and _name(d) == _name(definition)]
    return [f"{definition.file.path}: {_name(definition)!r} is defined in {others[0].file.path} too"] if others else []


EXAMPLES = (unchanged("def f(x):\n    return g(x)\n\ndef g(x):\n    return x"),)
