"""The order of a conversion, and its result.

`convert` is a function of the source files and the facts alone: no torch, no network, no clock; equal input gives equal bytes.
"""

import ast
import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

from maxcode.converter import registry
from maxcode.converter.assemble import assemble
from maxcode.converter.collect import collect
from maxcode.converter.config_class import ConfigSource, emit_config, emit_module_config
from maxcode.converter.context import Assumption, Context, Definition, Gap
from maxcode.converter.nodes import blocks
from maxcode.converter.passes.aliases import check_aliases
from maxcode.converter.passes.constants import carry_constants
from maxcode.converter.passes.division import divide_exactly
from maxcode.converter.passes.docstrings import shorten_docstrings
from maxcode.converter.passes.experts import dispatch_experts
from maxcode.converter.passes.fold import Fold
from maxcode.converter.passes.inplace import InPlace
from maxcode.converter.passes.kwargs import specialise_kwargs
from maxcode.converter.passes.layers import stack_layers
from maxcode.converter.passes.loops import scan_loops
from maxcode.converter.passes.modules import convert_constructors
from maxcode.converter.passes.mutated import return_mutated
from maxcode.converter.passes.names import Names
from maxcode.converter.passes.ops import Ops
from maxcode.converter.passes.signature import Signature
from maxcode.converter.passes.tidy import remove_unused
from maxcode.converter.source import Project


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion: the package's files by relative path, and what could not be converted or was assumed."""

    files: dict[str, str]
    gaps: list[Gap]
    assumptions: list[Assumption]
    entry: str
    classes: dict[str, str] = field(default_factory=dict)  # converted class -> qualified source class
    source_sha256: str = ""
    torch_bases: dict[str, str] = field(default_factory=dict)  # source class -> the torch layer it derives from

    def to_json(self) -> dict[str, Any]:
        """JSON record, files by name and size only."""
        return {
            "files": {name: len(text) for name, text in self.files.items()},
            "gaps": [asdict(g) for g in self.gaps],
            "assumptions": [asdict(a) for a in self.assumptions],
            "entry": self.entry,
            "classes": self.classes,
            "torch_bases": self.torch_bases,
            "source_sha256": self.source_sha256,
        }


def convert(target: dict, facts: dict, package: str) -> Conversion:
    """Convert the model class of `target` (docs/interfaces.md §3), as seen in `facts`, into the package named `package`.

    Raises ValueError when the entry class is not in the facts.
    """
    entry = f"{target['module']}.{target['class_name']}"
    classes = facts.get("classes", {})
    if entry not in classes:
        raise ValueError(
            f"facts: no instance of {entry!r} was built; the run built {sorted(classes)[:5]}…; probe the target again"
        )
    known = {name.rpartition(".")[0]: row["file"] for name, row in classes.items() if row.get("file")}
    project = Project(target["module"], classes[entry]["file"], known)
    context = Context(project, facts, entry)
    collect(context)
    config = _config_text(target, facts)
    names = {d.qualified: Names(context, d, _class_names(config)) for d in context.definitions}
    _structure(context)
    _expressions(context, names)
    files = assemble(context, target, config, package)
    gaps = sorted(context.gaps, key=lambda g: (g.file, g.line, g.code, g.torch_name))
    return Conversion(
        files, gaps, context.assumptions, target["class_name"],
        {d.name: d.qualified for d in context.definitions if d.is_class}, _digest(project), torch_bases(facts),
    )  # fmt: skip


def torch_bases(facts: dict) -> dict[str, str]:
    """For every module class of the model, the torch (or framework) layer whose weight rule holds for its instances."""
    registry.load()
    found = {}
    for name, row in facts.get("classes", {}).items():
        base = next((c for c in row["mro"] if registry.canonical(c) in registry.MODULES), None)
        if base is not None:
            found[name] = registry.canonical(base)
    return found


def _structure(context: Context) -> None:
    """Passes over whole definitions, while expressions are still torch's. The order matters:

    keywords first, since every later pass reads call sites; experts before in-place writes, which their pattern contains;
    mutated arguments before in-place writes, which would hide them; loops last, when their bodies only rebind names.
    """
    specialise_kwargs(context)
    carry_constants(context)
    _each_function(context, lambda d, f: dispatch_experts(context, f))
    return_mutated(context)
    check_aliases(context)
    _each_function(context, lambda d, f: _apply(InPlace(context, d, f), f))
    _each_function(context, lambda d, f: _apply(Fold(), f))
    for definition in context.definitions:
        if definition.is_class:
            stack_layers(context, definition)
    _each_function(context, lambda d, f: scan_loops(context, d, f))
    _each_function(context, lambda d, f: divide_exactly(context, d, f))


def _expressions(context: Context, names: dict[str, Names]) -> None:
    """Passes that turn torch's expressions into JAX's; constructors first, since op rules would not know their classes."""
    convert_constructors(context)
    for definition in context.definitions:
        if isinstance(definition.node, ast.ClassDef | ast.FunctionDef):
            _each_function_of(definition, lambda f, d=definition: _apply(Ops(context, d, f), f))
        else:
            holder = ast.FunctionDef(
                definition.name, ast.arguments([], [], None, [], [], None, []), [definition.node], [], None
            )
            _apply(Ops(context, definition, holder), holder)
    for definition in context.definitions:
        _each_function_of(definition, _tidy)
        shorten_docstrings(definition)
        Signature(context, definition, names[definition.qualified]).visit(definition.node)
        names[definition.qualified].run()


def _tidy(function: ast.FunctionDef) -> None:
    Fold().visit(function)
    while remove_unused(function):
        pass
    for block in blocks(function):
        if block:
            block[0].spaced = False


def _each_function(context: Context, change: Any) -> None:
    for definition in context.definitions:
        _each_function_of(definition, lambda f, d=definition: change(d, f))


def _each_function_of(definition: Definition, change: Any) -> None:
    for function in list(definition.functions()):
        change(function)


def _apply(transformer: ast.NodeTransformer, function: ast.FunctionDef) -> None:
    body: list[ast.stmt] = []
    for statement in function.body:
        result = transformer.visit(statement)
        body += result if isinstance(result, list) else [result] if result is not None else []
    function.body = body or [ast.Pass()]


def _config_text(target: dict, facts: dict) -> str:
    """Text of the package's config.py."""
    if not target.get("config_class"):
        parameters = [(row["name"], row.get("default", ""), _given(row)) for row in facts.get("constructor", ())]
        return emit_module_config(target["class_name"], parameters)
    source = ConfigSource(facts["config_file"], target["config_class"], target["config_module"])
    return emit_config(source, facts.get("config") or target.get("config") or {})


def _given(row: dict) -> Any:
    """The value of a constructor argument: what was given, else its default where that is plain data."""
    if "value" in row:
        return row["value"]
    try:
        return ast.literal_eval(row["default"])
    except (KeyError, ValueError, SyntaxError):
        return None


def _class_names(text: str) -> frozenset[str]:
    return frozenset(n.name for n in ast.parse(text).body if isinstance(n, ast.ClassDef))


def _digest(project: Project) -> str:
    digest = hashlib.sha256()
    for module in sorted(m for m, f in project.files.items() if f is not None):
        digest.update(module.encode() + b"\0" + project.files[module].text.encode())
    return digest.hexdigest()
