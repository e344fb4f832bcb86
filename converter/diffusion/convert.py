"""A recorded pipeline becomes `pipeline.py`: its loop as one `lax.scan`, its decoding, over the converted parts."""

import ast
from dataclasses import dataclass, field
from typing import Any

from maxcode.converter.context import Assumption, Context, Definition, Gap, attach_facts
from maxcode.converter.diffusion.loop import SCHEDULE, STATE, Part, Structure
from maxcode.converter.emit import format_text, unparse
from maxcode.converter.helpers import ops_module
from maxcode.converter.library import support_library, support_module
from maxcode.converter.nodes import loads
from maxcode.converter.passes.fold import Fold
from maxcode.converter.passes.plumbing import Plumbing
from maxcode.converter.prune import home, prune
from maxcode.converter.source import Project

SCHEDULERS = {
    "FlowMatchEulerDiscreteScheduler": "schedulers",
    "EulerDiscreteScheduler": "noise_schedulers",
    "DDIMScheduler": "noise_schedulers",
}
_FLOAT32 = "float32 = jnp.float32  # the parity check lifts this to float64"


@dataclass
class PipelineConversion:
    """Files of the package by name, and what could not be converted or was assumed."""

    files: dict[str, str] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    denoise: list[str] = field(default_factory=list)  # what `denoise` is given beside schedule and latents
    decode: list[str] = field(default_factory=list)


def convert_pipeline(recording: dict[str, Any], parts: list[str]) -> PipelineConversion:
    """Convert what `recording` saw of a pipeline (docs/interfaces.md §7.3) over the subpackages `parts`."""
    entry = f"{recording['module']}.{recording['class_name']}"
    project = Project(recording["module"], recording["file"])
    context = Context(project, {"files": recording["facts"], "classes": {}}, entry)
    file = project.file(recording["module"])
    attach_facts(file, context.facts)
    definition = Definition(recording["class_name"], file, file.definitions[recording["class_name"]])
    structure = Structure(context, definition, recording)
    found = [structure.loop(), structure.decoding()]
    if recording["scheduler"] not in SCHEDULERS:
        reason = f"no sampler {recording['scheduler']!r} in the support library; it has {', '.join(SCHEDULERS)}"
        context.gap("CV141", definition.node, recording["scheduler"], reason, "choose another scheduler")
    if context.gaps or None in found:
        return PipelineConversion(gaps=context.gaps, assumptions=context.assumptions)
    loop, decoding = found
    helpers = [m for part in found for m in structure.methods(part)]
    functions = [*helpers, loop.function, decoding.function]
    for function in functions:
        _simplify(context, function)
    context.definitions = _definitions(context, file, functions)
    _run_passes(context)
    result = PipelineConversion(gaps=context.gaps, assumptions=context.assumptions)
    result.denoise, result.decode = loop.given, decoding.given
    if not context.gaps:
        result.files = _files(context, recording, loop, decoding, parts)
    return result


def _simplify(context: Context, function: ast.FunctionDef) -> None:
    Plumbing(context).visit(function)
    Fold().visit(function)
    ast.fix_missing_locations(function)


def _run_passes(context: Context) -> None:
    from maxcode.converter.pipeline import PASSES, run_passes

    run_passes(context, PASSES)


def _definitions(context: Context, file: Any, functions: list[ast.FunctionDef]) -> list[Definition]:
    """The functions, after those of the pipeline's own modules that they call."""
    found: dict[str, Definition] = {}
    queue = [Definition(f.name, file, f) for f in functions]
    own = [(d.file.module, d.name) for d in queue]
    called: list[Definition] = []
    while queue:
        definition = queue.pop()
        for node in loads([definition.node]):
            qualified = definition.file.qualify(node.id)
            located = context.project.lookup(qualified) if qualified and "diffusers." in qualified else None
            if located is None or not isinstance(located[1], ast.FunctionDef) or qualified in found:
                continue
            attach_facts(located[0], context.facts)
            _simplify(context, located[1])
            found[qualified] = Definition(located[1].name, *located)
            if (located[0].module, located[1].name) not in own:
                called.insert(0, found[qualified])
                queue.append(found[qualified])
    return [*called, *(Definition(f.name, file, f) for f in {id(f): f for f in functions}.values())]


def _files(context: Context, recording: dict, loop: Part, decoding: Part, parts: list[str]) -> dict[str, str]:
    library = support_library()
    scheduler = recording["scheduler"]
    module = SCHEDULERS[scheduler]
    helpers = [d.node for d in context.definitions if d.node not in (loop.function, decoding.function)]
    body = "\n\n\n".join([unparse([n]) for n in helpers] + [_pipeline_class(recording, loop, decoding, parts)])
    names = {i for i in context.imports if i.startswith(("import ", "from "))}
    names |= {
        "from pathlib import Path", "from typing import Any", "import jax", "import jax.numpy as jnp",
        "from flax import nnx", "from jax import lax", "from jaxtyping import Array",
        f"from .{module} import {scheduler}",
    }  # fmt: skip
    names |= {f"from .{p} import Model as {_class(p)}" for p in parts}
    for support, used in sorted(context.support.items()):
        names |= {f"from .{home(library, support, one)} import {one}" for one in sorted(used)}
    names |= {
        f"from .{where} import {n.id}"
        for n in ast.walk(ast.parse(body))
        if isinstance(n, ast.Name) and (where := support_module(n.id))
    }
    names |= set(context.external.values())
    lifted = [_FLOAT32] if any(isinstance(n, ast.Name) and n.id == "float32" for n in ast.walk(ast.parse(body))) else []
    origin = recording["module"].replace(".", "/") + ".py"
    doc = f'"""{recording["class_name"]} in JAX, converted by MaxCode from {origin}."""'
    header = context.definitions[-1].file.license_header
    text = "\n\n".join([header, doc, "\n".join(sorted(names)), *lifted, body])
    files = {"pipeline.py": format_text(text, "pipeline.py")}
    if helpers_text := ops_module(context.helpers):
        files["ops.py"] = format_text(helpers_text, "ops.py")
    files["__init__.py"] = (
        f'"""{recording["class_name"]} in JAX."""\n\nfrom .pipeline import {recording["class_name"]}\n'
        f"from .pipeline import {recording['class_name']} as Pipeline\n\n"
        f'__all__ = ["{recording["class_name"]}", "Pipeline"]\n'
    )
    return prune(library, files, {}) | files


def _class(part: str) -> str:
    return "".join(word.capitalize() for word in part.split("_")) + "Model"


def _signature(part: Part) -> str:
    shown = [f"{n}={part.defaults[n]!r}" if n in part.defaults else n for n in part.given]
    return ", ".join(sorted(shown, key=lambda text: "=" in text))


def _pipeline_class(recording: dict, loop: Part, decoding: Part, parts: list[str]) -> str:
    """Text of the class; the converted bodies are put in as they are."""
    i, t = loop.index
    carry = ", ".join(loop.carry)
    step = unparse(loop.function.body[:-1])
    returned = unparse(loop.function.body[-1:])
    assert returned.startswith("return ")
    result = returned.removeprefix("return ").strip()
    fields = "\n".join(f"        self.{p} = {p}" for p in parts)
    loads_ = "\n".join(f"            {_class(p)}.from_pretrained(root / {p!r}, **overrides)," for p in parts)
    extra = f", *, {_signature(loop)}" if loop.given else ""
    more = f", *, {_signature(decoding)}" if decoding.given else ""
    others = ", ".join(n for n in loop.carry if n != "latents")
    others = f", {others}" if others else ""
    return f'''class {recording["class_name"]}:
    """The pipeline's parts, its sampling loop and its decoding. Jit `denoise` and `decode` as a whole."""

    def __init__(self, scheduler: {recording["scheduler"]}, {", ".join(parts)}):
        self.scheduler = scheduler
{fields}

    @classmethod
    def from_pretrained(cls, folder: str | Path, **overrides: Any) -> "{recording["class_name"]}":
        """Load every part's weights and configuration from an output folder of the conversion."""
        root = Path(folder) / "components"
        return cls(
            {recording["scheduler"]}.from_json(Path(folder) / "scheduler" / "scheduler_config.json"),
{loads_}
        )

    def denoise(self, {SCHEDULE}, latents: Array{others}{extra}) -> tuple[Array, Array]:
        """All steps of `schedule` (of `self.scheduler.set_timesteps`) as one scan: the latents, and each step's."""

        def denoise_step(carry, scanned):
            {carry}, {STATE} = carry
            {i}, {t} = scanned
{_indented(step, 12)}
            return ({result}), latents

        scanned = jnp.arange(len({SCHEDULE}.timesteps)), jnp.asarray({SCHEDULE}.timesteps)
        start = ({carry}, {SCHEDULE}.init_state(latents))
        (latents, *_), steps = lax.scan(denoise_step, start, scanned)
        return latents, steps

    def decode(self, latents: Array{more}) -> Array:
        """The image of denoised latents, as the autoencoder gives it (mostly in -1 .. 1)."""
{_indented(unparse(decoding.function.body), 8)}
'''


def _indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line if line.strip() else line for line in text.splitlines())
