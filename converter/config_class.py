"""The emitted package's config.py: the source's configuration classes as frozen dataclasses.

The classes keep the source's fields, defaults, derivations and checks; what every configuration of the framework has
comes from the support modules. See `maxcode.converter.support.config_base` for how an instance is built.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxcode.converter.config_fields import convert_class, targets
from maxcode.converter.config_reach import SUPPORT, Collector, ConfigError, Reached
from maxcode.converter.emit import format_text, unparse
from maxcode.converter.facts import MISSING
from maxcode.converter.nodes import dress
from maxcode.converter.source import Project, SourceFile

__all__ = ["ConfigError", "ConfigSource", "emit_config", "emit_module_config", "module_parameters"]

# Tunix's names -> the source's, offered where the source has no such name itself.
_TUNIX_NAMES = {
    "num_layers": ("num_hidden_layers",),
    "num_kv_heads": ("num_key_value_heads", "num_attention_heads"),
}


@dataclass(frozen=True)
class ConfigSource:
    """Where a configuration class is defined."""

    path: str
    class_name: str
    module: str


def emit_config(entry: ConfigSource, resolved: Mapping[str, Any] | None = None) -> str:
    """Text of config.py for the configuration class `entry`, formatted.

    Args:
        entry: the class.
        resolved: the full `to_dict()` of the configuration that is converted; it decides which classes stand behind
            nested configurations whose class the source looks up by `model_type`.

    Raises:
        ConfigError: when the class is not in its file, or needs something that cannot be brought along.
    """
    resolved = dict(resolved or {})
    project = Project(entry.module, entry.path)
    file = project.file(entry.module)
    if file is None or not isinstance(file.definitions.get(entry.class_name), ast.ClassDef):
        raise ConfigError(f"{entry.path}: no class {entry.class_name!r} in it; give the class that the model takes")
    collector = Collector(project, resolved)
    collector.reach(file, entry.class_name, is_config=True)
    reached = collector.reached
    renames = _layer_type_renames(project, file, resolved)
    keep = frozenset(reached.names | {"Any"})
    for source, node in reached.order:
        if isinstance(node, ast.ClassDef) and node.name in reached.configs:
            convert_class(node, source, keep, _bases(node, reached))
            _insert_renames(node, renames)
            node.body = [_class_table(s) for s in node.body]
    _add_tunix_names(entry.class_name, reached.classes)
    parts = [unparse([node]) for _, node in reached.order]
    if reached.uses_table:
        rows = ", ".join(f"{kind!r}: {name}" for kind, name in sorted(reached.by_type.items()))
        parts.append(f"CONFIG_MAPPING = {{{rows}}}")
    return _module_text(file.license_header, entry.module, reached, parts)


def _bases(node: ast.ClassDef, reached: Reached) -> list[str]:
    names = [ast.unparse(base).split(".")[-1] for base in node.bases]
    names = [SUPPORT[name][1] if name in SUPPORT else name for name in names if name != "object"]
    if any(name in reached.configs or name == "PreTrainedConfig" for name in names):
        return names
    return [*names, "config_base.Config" if "Config" in reached.classes else "Config"]


def _module_text(header: str, module: str, reached: Reached, parts: list[str]) -> str:
    base = "from . import config_base" if "Config" in reached.classes else "from .config_base import Config"
    imports = [
        "import dataclasses", "from typing import Any, ClassVar", "from .config_base import config_class, filled_in",
        base,
        *sorted(reached.imports),
    ]  # fmt: skip
    docstring = f'"""Configuration, converted from {module}."""'
    head = [header] if header else []
    return format_text("\n\n".join([*head, docstring, "\n".join(imports), "\n\n\n".join(parts)]) + "\n", "config.py")


def _layer_type_renames(project: Project, file: SourceFile, resolved: Mapping[str, Any]) -> dict[str, str]:
    """The older names of this configuration's layer types, from the module of the framework's base class."""
    types = {kind for key in ("layer_types", "mtp_layer_types") for kind in resolved.get(key) or ()}
    base = next((name for name in SUPPORT if name in file.imports and name.endswith("Config")), None)
    found = project.lookup(file.imports[base]) if base and types else None
    for name, node in found[0].definitions.items() if found else ():
        if "LAYER_TYPE_REMAP" in name and isinstance(node.value, ast.Dict):
            return {old: new for old, new in ast.literal_eval(node.value).items() if new in types}
    return {}


def _class_table(statement: ast.stmt) -> ast.stmt:
    """`attribute_map = {…}` in a class body, which is one table for all instances, with the annotation that says so."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict | ast.List | ast.Set)):
        return statement
    kind = {ast.Dict: "dict", ast.List: "list", ast.Set: "set"}[type(statement.value)]
    annotation = ast.parse(f"ClassVar[{kind}]", mode="eval").body
    return dress(ast.AnnAssign(statement.targets[0], annotation, statement.value, 1), statement)


def _insert_renames(node: ast.ClassDef, renames: Mapping[str, str]) -> None:
    fields = {t.id for s in node.body for t in targets(s) if isinstance(t, ast.Name)}
    if not renames or "layer_types" not in fields:
        return
    first = next(i for i, s in enumerate(node.body) if isinstance(s, ast.AnnAssign))
    note = "# names of layer types in older configuration files"
    statement = ast.parse(f"layer_type_renames: ClassVar[dict[str, str]] = {dict(renames)!r}").body[0]
    statement.leading, statement.trailing, statement.spaced = [note], "", False
    node.body.insert(first, statement)


def _add_tunix_names(name: str, classes: Mapping[str, ast.ClassDef]) -> None:
    known = _attributes(name, classes)
    for new, sources in _TUNIX_NAMES.items():
        source = next((s for s in sources if s in known), None)
        if source is None or new in known:
            continue
        text = f'@property\ndef {new}(self) -> int:\n    """The source\'s `{source}`."""\n    return self.{source}\n'
        method = ast.parse(text).body[0]
        method.spaced = True
        classes[name].body.append(method)


def _attributes(name: str, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Fields, aliases, properties and stored attributes of a class and its bases."""
    node = classes.get(name)
    if node is None:
        return set()
    found = {t.id for s in node.body for t in targets(s) if isinstance(t, ast.Name)}
    found |= {s.name for s in node.body if isinstance(s, ast.FunctionDef)}
    attributes = (n for n in ast.walk(node) if isinstance(n, ast.Attribute))
    found |= {n.attr for n in attributes if isinstance(getattr(n, "ctx", None), ast.Store)}
    for statement in node.body:
        if any(isinstance(t, ast.Name) and t.id == "attribute_map" for t in targets(statement)):
            parts = [*statement.value.keys, *statement.value.values]
            found |= {part.value for part in parts if isinstance(part, ast.Constant)}
    return found.union(*(_attributes(ast.unparse(base), classes) for base in node.bases))


def emit_module_config(class_name: str, init_params: Sequence[tuple[str, str, Any]]) -> str:
    """Text of config.py for a plain module: its constructor's arguments as fields.

    Args:
        class_name: the module's class; the configuration is called `<class_name>Config`.
        init_params: (name, source text of the default or "" for none, value given at conversion) in order. The value
            becomes the default where it is plain data, so that `Config()` describes the converted module.

    Raises:
        ConfigError: for an argument with neither plain data nor a default.
    """
    lines = [_module_field(class_name, *parameter) for parameter in init_params]
    body = "\n".join(f"    {line}" for line in lines)
    return format_text(
        f'"""Configuration of {class_name}: the arguments of its constructor."""\n\n'
        "import dataclasses\nfrom typing import Any\n\nfrom .config_base import Config, config_class\n\n\n"
        f"@config_class\nclass {class_name}Config(Config):\n"
        f'    """How to build and run `{class_name}`."""\n\n{body}\n',
        "config.py",
    )


def module_parameters(facts: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Constructor parameters of a plain module, as `emit_module_config` takes them, by the instrumented run.

    One that was left at a default which is no plain data (a class, an object) is none: the constructor supplies it.
    """
    return [
        (
            row["name"],
            row.get("default", ""),
            _decode(row["value"]) if "value" in row else _literal(row.get("default", "None")),
        )
        for row in facts.get("constructor", ())
        if "value" in row or "default" not in row or _literal(row["default"]) is not MISSING
    ]


def _decode(value: Any) -> Any:
    """A value of target.json, in which tuples are tagged."""
    if isinstance(value, dict):
        if set(value) == {"__tuple__"}:
            return tuple(map(_decode, value["__tuple__"]))
        return {key: _decode(item) for key, item in value.items()}
    return [_decode(item) for item in value] if isinstance(value, list) else value


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return MISSING


def _module_field(class_name: str, name: str, default: str, value: Any) -> str:
    if not _is_plain(value):
        if not default:
            raise ConfigError(
                f"{class_name}.__init__: {name!r} is a {type(value).__name__}, which config.json cannot hold; "
                "give it a default or pass numbers, strings, lists or dictionaries"
            )
        return f"{name}: Any = {default}"
    text = f"dataclasses.field(default_factory=lambda: {value!r})" if isinstance(value, list | dict) else repr(value)
    if isinstance(value, float) and repr(value) in ("inf", "-inf", "nan"):
        text = f'float("{value!r}")'
    return f"{name}: {'Any' if value is None else type(value).__name__} = {text}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
