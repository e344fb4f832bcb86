"""The order of a conversion, and its result.

`convert` is a function of the source files and the facts alone: no torch, no network, no clock; equal input gives equal
bytes.
"""

import ast
import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

from maxcode.converter import registry
from maxcode.converter.assemble import assemble
from maxcode.converter.collect import collect
from maxcode.converter.config_class import ConfigSource, emit_config, emit_module_config, module_parameters
from maxcode.converter.context import Assumption, Context, ConversionError, Gap
from maxcode.converter.passes import (
    aliases,
    all_ones,
    annotations,
    branches,
    children,
    constants,
    distinct,
    division,
    docstrings,
    draws,
    experts,
    fold,
    gathered,
    host,
    inplace,
    kwargs,
    layer_classes,
    layers,
    loops,
    masked,
    modules,
    mutated,
    names,
    ops,
    own_names,
    ranges,
    reached,
    recomputed,
    remembered,
    renamed,
    signature,
    simplify,
    spread,
    tidy,
    views,
    windows,
)
from maxcode.converter.passing import Pass, each_class, each_definition, each_function, transform
from maxcode.converter.source import Project
from maxcode.converter.traced import TracedPart, classes_to_trace, traced_parts
from maxcode.converter.training.convert import Training, convert_training
from maxcode.converter.unreached import Unreached

# `collect` has simplified every definition already (passes `plumbing`, `rope` and `fold`), since that decides what is
# reached.
PASSES: tuple[Pass, ...] = (
    Pass(renamed, renamed.rename_arguments, "first, because every later pass reads call sites"),
    Pass(kwargs, kwargs.specialise_kwargs, "next, for the same reason"),
    Pass(own_names, each_function(own_names.use_own_names), "early, for passes that ask which function is called"),
    Pass(recomputed, each_function(recomputed.compute_anew), "before what a module keeps is looked for"),
    Pass(spread, each_function(spread.spread_arguments), "once `**kwargs` are gone, for passes that read arguments"),
    Pass(constants, constants.carry_constants, "so that branches that no call can take are not converted"),
    Pass(all_ones, each_function(all_ones.leave_out_ones), "on sizes as the source spells them"),
    Pass(draws, each_function(draws.draw_from_keys), "on calls as the source spells them"),
    Pass(ranges, each_function(ranges.count_ranges), "for the same reason"),
    Pass(experts, each_function(experts.dispatch_experts), "before in-place writes, which its pattern contains"),
    Pass(masked, each_function(masked.write_whole), "before writes are followed, of which it leaves plain ones"),
    Pass(views, each_function(views.write_through), "before calls are told which of their arguments are written"),
    Pass(mutated, mutated.return_mutated, "before in-place writes, which would hide what is written"),
    Pass(aliases, aliases.check_aliases, "on torch's own meaning of writes, with the arguments that come back"),
    Pass(inplace, transform(inplace.InPlace), "before loops, whose bodies may only rebind names"),
    Pass(fold, each_function(fold.fold_constants), "what the rewrites above made constant"),
    Pass(reached, reached.drop_unreached, "when calls are gone, and before passes that would report gaps in the rest"),
    Pass(remembered, remembered.keep_in_cache, "next, when it is known who reads what"),
    Pass(
        branches, each_function(branches.branch_on_values), "when bodies only rebind names, before numbers read count"
    ),
    Pass(host, host.mark_host_functions, "next, on calls as the source wrote them, without the branches not taken"),
    Pass(gathered, each_function(gathered.gather_locally), "before lists of layers are looked for"),
    Pass(layers, each_class(layers.stack_layers), "before counted loops, which it leaves no layer to"),
    Pass(loops, each_function(loops.scan_loops), "when bodies only rebind names"),
    Pass(division, each_function(division.divide_exactly), "last of those that read torch's own expressions"),
    Pass(children, each_function(children.change_children), "next, for the same reason"),
    Pass(layer_classes, each_definition(layer_classes.convert_layer_classes), "before constructors, which call them"),
    Pass(modules, modules.convert_constructors, "before operations, which do not know layer classes"),
    Pass(ops, ops.convert_operations, "when nothing but expressions is torch's"),
    Pass(windows, each_function(windows.convert_windows), "on tables that are read as arrays by now"),
    Pass(simplify, each_function(simplify.simplify), "on the statements as they will stand"),
    Pass(tidy, each_function(tidy.tidy), "what the passes above left behind"),
    Pass(docstrings, each_definition(docstrings.shorten_docstrings), "on the classes as they will stand"),
    Pass(annotations, each_function(annotations.correct_annotations), "next, on names as the source wrote them"),
    Pass(
        signature, each_definition(signature.convert_signature), "late: earlier passes read annotations and `forward`"
    ),
    Pass(names, each_definition(names.import_names), "when every name that is written is known"),
    Pass(distinct, distinct.tell_apart, "last, on names by which earlier passes find what they mean"),
)


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
    traced: list[TracedPart] = field(default_factory=list)  # classes whose forward is an exported graph's
    traceable: dict[str, str] = field(default_factory=dict)  # source class -> the gap that its forward reaches
    training: dict[str, Any] | None = None  # of a training program: its entry, and its steps with what they are given

    def to_json(self) -> dict[str, Any]:
        """JSON record, files by name and size only."""
        return {
            "files": {name: len(text) for name, text in self.files.items()},
            "gaps": [asdict(g) for g in self.gaps],
            "assumptions": [asdict(a) for a in self.assumptions],
            "entry": self.entry,
            "classes": self.classes,
            "torch_bases": self.torch_bases,
            "traced": [asdict(t) for t in self.traced],
            "source_sha256": self.source_sha256,
        }


def convert(target: dict, facts: dict, package: str) -> Conversion:
    """Convert the model class of `target` (docs/interfaces.md §3), as seen in `facts`, into the package `package`.

    Raises ValueError when the entry class is not in the facts.
    """
    entry = f"{target['module']}.{target['class_name']}"
    classes = facts.get("classes", {})
    if entry not in classes:
        raise ValueError(
            f"facts: no instance of {entry!r} was built; the run built {sorted(classes)[:5]}…; probe the target again"
        )
    config, unreached = _config_text(target, facts), Unreached()
    known = {name.rpartition(".")[0]: row["file"] for name, row in classes.items() if row.get("file")}
    known |= facts.get("modules", {})
    context = _converted(target, facts, config, known, unreached)
    while context.gaps and unreached.add(context):
        context = _converted(target, facts, config, known, unreached)
    training = _training(context, facts, known)
    files = assemble(context, target, config, package, {"training.py": training.text} if training else None)
    gaps = sorted(context.gaps, key=lambda g: (g.file, g.line, g.code, g.torch_name))
    return Conversion(
        files, gaps, context.assumptions, target["class_name"],
        {d.node.name: d.qualified for d in context.definitions if d.is_class}, _digest(context.project),
        torch_bases(facts),
        traced_parts(context), classes_to_trace(context, gaps),
        {"entry": training.entry, "steps": training.steps} if training else None,
    )  # fmt: skip


def _training(context: Context, facts: dict, known: dict[str, str]) -> Training | None:
    """The converted training program, where the target is one; its gaps, assumptions and helpers are the package's."""
    if not facts.get("training"):
        return None
    training = convert_training(facts, context.entry, known, context, PASSES)
    context.gaps += [gap for gap in training.gaps if gap not in context.gaps]
    context.assumptions += [a for a in training.assumptions if a not in context.assumptions]
    context.helpers |= training.helpers
    return training


def _converted(target: dict, facts: dict, config: str, known: dict[str, str], unreached: Unreached) -> Context:
    """The definitions after all passes, without the places that are left out."""
    entry = f"{target['module']}.{target['class_name']}"
    project = Project(target["module"], facts["classes"][entry]["file"], known)
    context = Context(project, facts, entry, unreached=unreached)
    collect(context)
    context.config_classes = _class_names(config)
    run_passes(context)
    return context


def torch_bases(facts: dict) -> dict[str, str]:
    """For every module class of the model, the torch (or framework) layer whose weight rule holds for its instances."""
    registry.load()
    found = {}
    for name, row in facts.get("classes", {}).items():
        base = next((c for c in row["mro"] if registry.canonical(c) in registry.MODULES), None)
        if base is not None:
            found[name] = registry.canonical(base)
    return found


def run_passes(context: Context, passes: tuple[Pass, ...] = PASSES) -> None:
    """Run passes in order; after each, what it and the earlier ones ensure is checked anew.

    Raises ConversionError naming the pass, those before it, file and line.
    """
    done: list[Pass] = []
    for current in passes:
        current.run(context)
        done.append(current)
        for earlier in done:
            _check(context, current, earlier, done)


def _check(context: Context, current: Pass, earlier: Pass, done: list[Pass]) -> None:
    ensures = getattr(earlier.module, "ensures", None)
    if ensures is None or context.gaps:
        return  # what is a gap stays as it was
    found = [message for d in context.definitions for message in ensures(context, d)]
    if found:
        raise ConversionError(
            f"after pass {current.name!r}, what {earlier.name!r} ensures no longer holds: {'; '.join(found[:3])}; "
            f"passes so far: {', '.join(p.name for p in done)}; this is a fault of the converter, please report it"
        )


def _config_text(target: dict, facts: dict) -> str:
    """Text of the package's config.py."""
    if not target.get("config_class"):
        return emit_module_config(target["class_name"], module_parameters(facts))
    source = ConfigSource(facts["config_file"], target["config_class"], target["config_module"])
    return emit_config(source, facts.get("config") or target.get("config") or {})


def _class_names(text: str) -> frozenset[str]:
    return frozenset(n.name for n in ast.parse(text).body if isinstance(n, ast.ClassDef))


def _digest(project: Project) -> str:
    digest = hashlib.sha256()
    for module in sorted(m for m, f in project.files.items() if f is not None):
        digest.update(module.encode() + b"\0" + project.files[module].text.encode())
    return digest.hexdigest()
