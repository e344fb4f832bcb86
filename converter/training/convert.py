"""Convert a training program: `convert_training` gives the text of the package's `training.py`."""

import ast
from dataclasses import dataclass, field
from typing import Any

from maxcode.converter.context import Assumption, Context, Definition, Gap
from maxcode.converter.emit import format_text, unparse
from maxcode.converter.library import support_library
from maxcode.converter.nodes import stored
from maxcode.converter.passes import annotations, docstrings, inplace, names, ops, simplify, tidy
from maxcode.converter.passing import Pass, each_definition, each_function, transform
from maxcode.converter.prune import home
from maxcode.converter.training.host import Host, rebase
from maxcode.converter.training.loops import Loops
from maxcode.converter.training.program import Program, collect_program
from maxcode.converter.training.statements import LoopError
from maxcode.converter.training.steps import Step

LOOP = "CV120"  # a training loop that is not understood

HOST_PASSES: tuple[Pass, ...] = (
    Pass(inplace, transform(inplace.InPlace), "on torch's own meaning of writes"),
    Pass(ops, ops.convert_operations, "what the host computes with arrays"),
    Pass(simplify, each_function(simplify.simplify), "on the statements as they will stand"),
    Pass(tidy, each_function(tidy.tidy), "what the passes above left behind"),
    Pass(docstrings, each_definition(docstrings.shorten_docstrings), "on the definitions as they will stand"),
    Pass(annotations, each_function(annotations.correct_annotations), "next, on names as the source wrote them"),
    Pass(names, each_definition(names.import_names), "last, when every name that is written is known"),
)


@dataclass
class Training:
    """The converted program: its text, what it uses, what is not converted, and what it is called by."""

    text: str
    entry: str
    gaps: list[Gap]
    assumptions: list[Assumption]
    helpers: set[str]
    steps: list[dict[str, Any]] = field(default_factory=list)


def convert_training(
    facts: dict[str, Any], entry: str, files: dict[str, str], model: Context, passes: tuple[Pass, ...]
) -> Training:
    """Convert the program of `facts["training"]`, which trains the class `entry`.

    Args:
      files: source files by module.
      model: the finished conversion of the model; its definitions are imported from modeling.py.
      passes: those of a model, for what runs inside a compiled step.
    """
    defined = frozenset(d.qualified for d in model.definitions)
    program = collect_program(facts, entry, files, defined)
    host = program.context
    steps = _cut_steps(program)
    device = _device_context(program, steps)
    host.definitions = [d for d in host.definitions if not any(d is o for o in device.definitions)]
    for definition in host.definitions:
        rebase(host, definition)
        for function in list(definition.functions()):
            _transform(Host(host, definition, function), function)
    host.provided = device.provided = program.shared | frozenset(
        {d.name for d in (*model.definitions, *host.definitions, *device.definitions)}
        | {s.step_function.name for s in steps}
    )
    for context, chosen in ((device, passes), (host, HOST_PASSES)):
        for current in chosen:
            current.run(context)
    return _written(program, device, steps, model)


def _transform(transformer: ast.NodeTransformer, function: ast.FunctionDef) -> None:
    body: list[ast.stmt] = []
    for statement in function.body:
        result = transformer.visit(statement)
        body += result if isinstance(result, list) else [result] if result is not None else []
    function.body = body or [ast.Pass()]


def _cut_steps(program: Program) -> list[Step]:
    """Take the training steps out of every function of the host; what is not understood is a gap."""
    steps: list[Step] = []
    taken = {d.name for d in program.context.definitions} | {"start", "finish"}
    for definition in program.context.definitions:
        for function in list(definition.functions()):
            try:
                steps += Loops(program.context, definition, function, taken).run()
            except LoopError as error:
                hint = error.hint or "write the loop as zero_grad, forward, backward, step in one block"
                program.context.gap(LOOP, error.node, f"{definition.name}: training loop", error.reason, hint)
    if not steps and not program.context.gaps:
        main = program.definitions[next(iter(program.definitions))].node
        program.context.gap(LOOP, main, "training loop", "no loss.backward() with an optimizer's step was found", "")
    return steps


def _device_context(program: Program, steps: list[Step]) -> Context:
    """The context of what runs inside compiled steps: loss functions, and the program's functions that they call."""
    host = program.context
    file = next(iter(program.definitions.values())).file
    context = Context(host.project, host.facts, host.entry)
    made = [Definition(s.loss_function.name, file, s.loss_function) for s in steps]
    context.definitions = [*_called(program, [*made, *_module_classes(program)]), *made]
    return context


def _module_classes(program: Program) -> list[Definition]:
    """Classes of the program that derive from torch's modules (losses of its own)."""
    found: dict[str, Definition] = {}
    for definition in program.context.definitions:
        if isinstance(definition.node, ast.ClassDef):
            bases = {definition.qualified_base(base) for base in definition.node.bases}
            if bases & found.keys() or any(b.startswith("torch.nn.") for b in bases):
                found[definition.qualified] = definition
    return list(found.values())


def _called(program: Program, made: list[Definition]) -> list[Definition]:
    """Definitions of the program that the loss functions reach, in the order of the source."""
    found = {d.qualified: d for d in made if d.is_class}
    pending = list(made)
    while pending:
        definition = pending.pop()
        own = {n.arg for n in ast.walk(definition.node) if isinstance(n, ast.arg)} | set(stored([definition.node]))
        for node in ast.walk(definition.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
                qualified = definition.file.qualify(node.id)
                reached = program.definitions.get(qualified or "")
                if reached is not None and reached.qualified not in found and not isinstance(reached.node, ast.Assign):
                    found[reached.qualified] = reached
                    pending.append(reached)
    return sorted(found.values(), key=lambda d: d.node.lineno)


def _written(program: Program, device: Context, steps: list[Step], model: Context) -> Training:
    host = program.context
    for step in steps:
        for module, name in step.used:
            host.use(module, name)
    for context in (host, device):
        rename_modules(context, [*host.definitions, *device.definitions])
    loss = {s.loss_function.name: s for s in steps}
    parts: list[str] = []
    constants = [d for d in host.definitions if isinstance(d.node, ast.Assign | ast.AnnAssign)]
    parts += [unparse([d.node for d in constants])] if constants else []
    for definition in device.definitions:
        parts.append(unparse([definition.node]))
        if definition.name in loss:
            parts.append(unparse([loss[definition.name].step_function]))
    parts += [unparse([d.node]) for d in host.definitions if d not in constants]
    body = "\n\n".join(parts)
    text = format_text(_text(program, host, device, model, body), "training.py")
    gaps = [*host.gaps, *(g for g in device.gaps if g not in host.gaps)]
    return Training(
        text, program.entry, gaps, [*host.assumptions, *device.assumptions], host.helpers | device.helpers,
        [s.to_json() for s in steps],
    )  # fmt: skip


def rename_modules(context: Context, definitions: list[Definition]) -> None:
    """Support modules whose names the program uses for something of its own (`random`, `losses`) get another."""
    own = {
        n.id for d in definitions for n in ast.walk(d.node) if isinstance(n, ast.Name) and hasattr(n, "file")
    }  # what the source wrote, other than what rules made
    for statement in sorted(context.imports):
        module = statement.removeprefix("from . import ")
        if module == statement or module not in own:
            continue
        context.imports = context.imports - {statement} | {f"{statement} as {module}_"}
        for definition in context.definitions:
            for node in ast.walk(definition.node):
                if isinstance(node, ast.Name) and node.id == module and not hasattr(node, "file"):
                    node.id = f"{module}_"


def _seed(host: Context) -> int:
    """The seed that the program sets, else 0."""
    for node in ast.walk(host.project.file(host.facts["training"]["module"]).seeds):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("manual_seed"):
            value = node.args[0]
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                return value.value
    return 0


def _text(program: Program, host: Context, device: Context, model: Context, body: str) -> str:
    origin = host.facts["training"]["file"].rpartition("/")[2]
    doc = f'"""Training of {host.entry.rpartition(".")[2]} in JAX, converted by MaxCode from {origin}."""'
    library = support_library()
    imports = {"import jax", "import jax.numpy as jnp", "from flax import nnx", "from jax import lax"}
    imports |= {"from functools import partial"}
    used = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)}
    own = {n.name for n in ast.parse(body).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for context in (host, device):
        imports |= {i for i in context.imports if i.startswith(("import ", "from "))}
        imports |= set(context.external.values())
        for module, names_ in sorted(context.support.items()):
            imports |= {f"from .{home(library, module, name)} import {name}" for name in sorted(names_)}
    imports |= {f"from .modeling import {d.name}" for d in model.definitions if d.name in used - own}
    constants = ["float32 = jnp.float32  # the parity check lifts this to float64"] if "float32" in used else []
    license_header = next(iter(program.definitions.values())).file.license_header
    tail = (
        f'if __name__ == "__main__":\n    with key_scope(jax.random.key({_seed(host)})):\n        {program.entry}()\n'
    )
    imports.add("from .random import key_scope")
    return "\n\n".join([license_header, doc, "\n".join(sorted(imports)), "\n".join(constants), body, tail])
