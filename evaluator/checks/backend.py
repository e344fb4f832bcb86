"""`backend:<name>`: every other attention, expert or kernel backend that the package lists, under the peer rule."""

import jax

from maxcode.evaluator.backends import listed_backends
from maxcode.evaluator.checks.precision import peer_rule
from maxcode.evaluator.checks.registry import Context, NotApplicable, check
from maxcode.evaluator.package import Runner, cast_floats, split_static, to_jax
from maxcode.evaluator.verdict import Check


@check("backend", group="plain")
def backend(context: Context, name: str) -> Check:
    """Both dtypes, or the one that the source runs in; the worse figure. A refusal of this model does not apply."""
    field = next(f for f, names in listed_backends(context.package.path).items() if name in names)
    if not context.package.has_run_field(field):
        raise NotApplicable(f"the configuration has no field {field!r} to choose it by")
    label = f"backend:{name}"
    try:
        if program(context) == program(context, **{field: name}):
            raise NotApplicable(f"config.{field}={name!r} changes nothing in this model's program")
        runs = [d for d in ("float32", "bfloat16") if d in context.oracle or not context.oracle.reason(d)]
        results = [peer_rule(context, label, dtype, **{field: name}) for dtype in runs]
    except NotImplementedError as refused:
        return Check(label, "n/a", detail=f"the backend refuses this model: {' '.join(str(refused).split())}")
    return max(results, key=lambda result: (result.status == "fail", result.value or 0.0))


def program(context: Context, **overrides: str) -> str:
    """The traced forward as text."""
    model = context.package.build(**context.package.overrides("float32", **overrides))
    inputs = cast_floats(context.scenario("float32").cases[0].inputs, "float32")
    traced, static = split_static(model, inputs)
    runner = Runner(model)
    return str(jax.make_jaxpr(runner.function(static))(runner.state, to_jax(traced)))
