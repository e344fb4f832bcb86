"""`backend:<name>`: every other attention, expert or kernel backend that the package lists, under the peer rule."""

from maxcode.evaluator.checks.precision import peer_rule
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.package import Package
from maxcode.evaluator.verdict import Check

FIELDS = {"attention": "attention", "moe": "experts"}  # module that lists BACKENDS -> configuration field


@check("backend", group="plain")
def backend(context: Context, name: str) -> Check:
    """Both dtypes; the worse figure. A backend that refuses this model says so and does not apply."""
    field = next(f for f, names in backends(context.package).items() if name in names)
    label = f"backend:{name}"
    try:
        results = [peer_rule(context, label, dtype, **{field: name}) for dtype in ("float32", "bfloat16")]
    except NotImplementedError as refused:
        return Check(label, "n/a", detail=f"the backend refuses this model: {' '.join(str(refused).split())}")
    worse = max(results, key=lambda r: (r.status == "fail", r.value or 0.0))
    return worse


def backends(package: Package) -> dict[str, list[str]]:
    """Selectable names by configuration field, the default left out."""
    found = {}
    for module_name, field in FIELDS.items():
        module = package.submodule(module_name)
        if module is not None and package.has_run_field(field):
            found[field] = [name for name in getattr(module, "BACKENDS", ()) if name != "eager"]
    return found
