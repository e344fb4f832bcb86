"""`dtypes`: in bfloat16 every module boundary has the source's dtype (the lift of `exact` hides a dropped upcast)."""

from typing import Any

import jax
from flax import nnx

from maxcode.evaluator.capture import watching
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.operations import module_names, narrower, not_widened, traced_operations
from maxcode.evaluator.package import cast_floats, named_outputs, split_static, to_jax
from maxcode.evaluator.verdict import Check

FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
SHOWN = 5


@check("dtypes", group="plain", cheap=True)
def dtypes(context: Context) -> Check:
    """Compare output dtypes by module path and call, and those of sensitive operations inside; all traced, not run."""
    case = context.scenario("dtypes").cases[0]
    model = context.package.build(**context.package.overrides("bfloat16", scan_layers=False))
    ours = boundary_dtypes(model, cast_floats(case.inputs, "bfloat16"))
    compared, faults, absent = 0, [], set()
    for call in case.record["modules"]:
        found = ours.get((call["fqn"], call["call"]))
        if found is None:
            absent.add(call["fqn"])
            continue
        for name, wanted in call["dtypes"].items():
            if name in found and wanted in FLOATS:
                compared += 1
                if found[name] != wanted:
                    cls = call["class"].rpartition(".")[2]
                    faults.append(
                        f"{call['fqn'] or 'the model'} ({cls}) gives {name} in {found[name]}, expected {wanted}"
                    )
    detail = f"{compared} boundaries compared"
    if (operations := case.record.get("operations")) is not None:
        dtypes_of, widened = traced_operations(model, cast_floats(case.inputs, "bfloat16"))
        faults += narrower(dtypes_of, operations)
        faults += not_widened(widened, case.record.get("widened", {}), module_names(model))
        detail += f", and operations inside {len(operations)} modules"
    detail = "; ".join(faults[:SHOWN]) or detail
    if absent:
        detail += f"; {len(absent)} source modules are no modules here ({', '.join(sorted(absent)[:3])} …)"
    context.save_evidence("dtypes", {"compared": compared, "faults": faults, "absent": sorted(absent)})
    return Check.of("dtypes", len(faults), 0, detail, ok=compared > 0)


def boundary_dtypes(model: nnx.Module, inputs: dict[str, Any]) -> dict[tuple[str, int], dict[str, str]]:
    """Output dtypes {name: dtype} of every module call by (fqn, call number)."""
    graph, state = nnx.split(model)
    traced, static = split_static(model, inputs)
    seen: dict[tuple[str, int], dict[str, str]] = {}

    def observe(fqn: str, call: int, module: nnx.Module, output: Any) -> None:
        seen[fqn, call] = {name: str(value.dtype) for name, value in named_outputs(output).items()}

    def forward(state, traced):
        merged = nnx.merge(graph, state)
        with watching(merged, observe):
            return named_outputs(merged(**traced, **static))

    jax.eval_shape(forward, state, to_jax(traced))
    return seen
