"""`compile`: no retrace on a second call; prefill of many lengths compiles once per bucket."""

import inspect
import statistics
import time
from collections import Counter

import jax
import numpy as np

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.package import Runner, cast_floats
from maxcode.evaluator.verdict import Check

SMALL = 0.25  # programs that compile faster than this share of the slowest one are helpers
AGAIN = 9  # of the lengths, every so many are tried a second time
COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


@check("compile", group="plain")
def compiles(context: Context) -> Check:
    """`value` is the number of compiled programs of the prefill's busiest function over 100 prompt lengths."""
    inputs = cast_floats(context.scenario("exact").cases[0].inputs, np.float32)
    runner = Runner(context.package.build(**context.package.overrides("float32")))
    start = time.perf_counter()
    runner(inputs)
    seconds = time.perf_counter() - start
    runner(inputs)
    retraced = runner.traces - 1
    detail = f"forward compiles in {seconds:.1f} s, {retraced} retraces on the second call"
    if context.package.submodule("generate") is None or "cache" not in context.oracle:
        why = context.oracle.reason("cache") or "the package has no generate.py"
        return Check.of("compile", retraced, 0, f"{detail}; no prefill: {why}")
    counts = prefill_compiles(context, runner.model)
    name, busiest = counts.most_common(1)[0] if counts else ("", 0)
    repeated = sum(prefill_compiles(context, runner.model, AGAIN).values())
    detail += f"; {tolerance.PREFILL_LENGTHS} prompt lengths compile {name!r} {busiest} times"
    detail += f", every {AGAIN}th of them again {repeated} times"
    ok = retraced == 0 and busiest > 0 and repeated == 0
    return Check.of("compile", busiest, tolerance.PREFILL_BUCKETS, detail, ok=ok)


def prefill_compiles(context: Context, model, step: int = 1) -> Counter[str]:
    """Compilations by function name while `generate` answers prompts of 1 to 100 tokens (or as far as positions go)."""
    case = context.oracle.get("cache").cases[0]
    generate = context.package.submodule("generate").generate
    # Where the configuration names no token that a decoder starts with, any one compiles the same.
    has_decoder = "decoder_input_ids" in inspect.signature(type(model).__call__).parameters
    start = {"decoder_start_token_id": 0} if has_decoder else {}
    most = context.oracle.facts.get("max_positions") or 10**9
    taken: dict[str, list[float]] = {}

    def count(event: str, seconds: float, **labels: str) -> None:
        if event == COMPILE_EVENT:
            taken.setdefault(labels.get("fun_name", ""), []).append(seconds)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        row = next(iter(case.named("step_inputs").values()))[:1]
        for length in range(1, min(tolerance.PREFILL_LENGTHS, most - 2) + 1, step):
            jax.block_until_ready(generate(model, np.resize(row, (1, length)).tolist(), 2, **start))
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    longest = max((statistics.median(seconds) for seconds in taken.values()), default=0.0)
    # helpers such as padding one row are not the prefill
    large = {n: len(seconds) for n, seconds in taken.items() if statistics.median(seconds) >= SMALL * longest}
    return Counter(large)
