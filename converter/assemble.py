"""Put the converted definitions, their support modules and the configuration together as a package's files."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context
from maxcode.converter.emit import format_text, unparse
from maxcode.converter.helpers import ops_module
from maxcode.converter.library import support_library, support_module
from maxcode.converter.nodes import is_none, loads, read_before_write, stored, with_defaults
from maxcode.converter.passes.annotations import is_asked_for
from maxcode.converter.prune import home, prune

_FLOAT32 = "float32 = jnp.float32"
_FLOAT32_LINE = "float32 = jnp.float32  # the parity check lifts this to float64"
_ALWAYS = {"pretrained": None, "sharding": None}  # support modules that every package has, whole

# For the type checker, where the source leaves open when a value is None (torch checks no types).
_LOOSE = """\
# As in the source, types say where None may stand, not where it does.
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalCall=false
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOptionalSubscript=false"""
_UNBOUND = """\
# Names that one branch binds are read where that branch was taken.
# pyright: reportPossiblyUnboundVariable=false"""


def assemble(
    context: Context, target: dict, config: str, package: str, more: dict[str, str] | None = None
) -> dict[str, str]:
    """Text of every file of the package, by path relative to the package folder; `more` are files made elsewhere."""
    body = "\n\n".join(_definition(d.node) for d in context.definitions)
    helpers = ops_module(context.helpers)
    files = {"config.py": config, "outputs.py": _outputs(context), **(more or {})}
    files["modeling.py"] = format_text(_modeling(context, target, body), "modeling.py")
    if helpers:
        files["ops.py"] = _formatted(helpers, "ops.py")
    files |= _support(context, files)
    files["__init__.py"] = _init(context, target)
    return {name: text for name, text in files.items() if text}


def _definition(node: ast.stmt) -> str:
    return unparse([node])


def _modeling(context: Context, target: dict, body: str) -> str:
    entry = context.definitions[-1]
    header = entry.file.license_header
    origin = target["module"].replace(".", "/") + ".py"
    doc = f'"""{target["class_name"]} in JAX, converted by MaxCode from {origin}."""'
    constants = []
    if _FLOAT32 in context.imports or _mentions(body, "float32"):
        context.imports |= {"import jax.numpy as jnp"}
        constants.append(_FLOAT32_LINE)
    imports = {i for i in context.imports if i.startswith(("import ", "from "))}
    imports |= {
        "import jax",
        "import jax.numpy as jnp",
        "from flax import nnx",
        "from jax import lax",
        "from jaxtyping import Array",
    }
    library = support_library()
    for module, names in sorted(context.support.items()):
        imports |= {f"from .{home(library, module, name)} import {name}" for name in sorted(names)}
    imports |= _layer_imports(body, {n for names in context.support.values() for n in names})
    imports |= set(context.external.values())
    return "\n\n".join([header, doc, _for_checker(body), "\n".join(sorted(imports)), "\n".join(constants), body])


def _for_checker(body: str) -> str:
    """What a type checker is told of the source's habits, where the text has them."""
    functions = [n for n in ast.walk(ast.parse(body)) if isinstance(n, ast.FunctionDef)]
    is_loose = any(not is_asked_for(f, name) for f in functions for name in _may_be_none(f))
    may_be_unbound = any(read_before_write(f.body, kept=False) & set(stored(f.body)) - _own_names(f) for f in functions)
    return "\n".join([_LOOSE] * is_loose + [_UNBOUND] * may_be_unbound)


def _may_be_none(function: ast.FunctionDef) -> set[str]:
    """Parameters of a stated type that are None by default and that the function reads."""
    found = {a.arg for a, default in with_defaults(function) if a.annotation and is_none(default)}
    return found & {n.id for n in loads(function.body)}


def _own_names(function: ast.FunctionDef) -> set[str]:
    """Names that a function has from its parameters, inner functions and expressions: bound where they are read."""
    targets = [n.target for n in ast.walk(function) if isinstance(n, ast.comprehension | ast.NamedExpr)]
    return {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)} | set(stored(targets))


def _layer_imports(body: str, imported: set[str]) -> set[str]:
    """Imports of support classes that module rules wrote by name."""
    tree = ast.parse(body)
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in own | imported and (module := support_module(node.id)):
            found.add(f"from .{module} import {node.id}")
    return found


def _mentions(body: str, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(ast.parse(body)))


def _formatted(text: str, name: str) -> str:
    return format_text(text.replace(_FLOAT32 + "\n", _FLOAT32_LINE + "\n"), name)


def _outputs(context: Context) -> str:
    """outputs.py: the source's output records with their fields, on the support library's record base."""
    if not context.records:
        return ""
    parts = [
        '"""Output records, with the source\'s names and fields."""',
        "from typing import Any",
        "from .records import Record, output_record",
    ]
    for name, (file, node) in sorted(context.records.items()):
        fields = _record_fields(context, file, node)
        lines = [f"    {field}: Any = None" for field in fields]
        text = _first_line(node) or f"Output of {name.removesuffix('Output')}."
        parts.append("\n".join(["@output_record", f"class {name}(Record):", f'    """{text}"""', "", *lines]))
    return format_text("\n\n\n".join(parts), "outputs.py")


def _first_line(node: ast.ClassDef) -> str:
    text = (ast.get_docstring(node) or "").strip().splitlines()
    return text[0].strip().replace("`", "") if text else ""


def _record_fields(context: Context, file, node: ast.ClassDef) -> list[str]:
    fields: list[str] = []
    for base in node.bases:
        name = ast.unparse(base).split(".")[0]
        qualified = file.imports.get(name) if name == node.name else file.qualify(name)
        located = context.project.lookup(qualified) if qualified else None
        if located is not None and isinstance(located[1], ast.ClassDef) and located[1].name not in tables.RECORDS:
            fields += _record_fields(context, *located)
    for statement in node.body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id not in fields
        ):
            fields.append(statement.target.id)
    return fields


def _support(context: Context, files: dict[str, str]) -> dict[str, str]:
    """The support modules that the emitted files import, with what those import in turn, pruned to what is used."""
    library = support_library()
    roots = dict(_ALWAYS)
    if context.support.get("cache"):
        roots |= {"generate": None}
    return prune(library, files, {k: v for k, v in roots.items() if k in library})


def _init(context: Context, target: dict) -> str:
    entry = target["class_name"]
    config = _config_name(context, target)
    names = sorted({entry, config, "Config", "Model"})
    lines = [f'"""{entry} in JAX."""', f"from .config import {config}", f"from .config import {config} as Config"]
    lines += [f"from .modeling import {entry}", f"from .modeling import {entry} as Model", f"__all__ = {names!r}"]
    return format_text("\n".join(lines), "__init__.py").replace("F401", "F401")


def _config_name(context: Context, target: dict) -> str:
    return target.get("config_class") or f"{target['class_name']}Config"
