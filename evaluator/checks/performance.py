"""`performance`: steady forward, training step and decode beside PyTorch, interleaved in one run."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.capture import watching
from maxcode.evaluator.checks.gradients import weighted_loss
from maxcode.evaluator.checks.registry import Context, NotRun, check
from maxcode.evaluator.machine import cpus
from maxcode.evaluator.package import Runner, accepted, cast_floats, named_outputs, split_static, to_jax
from maxcode.evaluator.peer import Peer
from maxcode.evaluator.verdict import Check

ROUNDS, REPEAT = 5, 3  # medians over all runs; the two sides take turns each round
LONG_SECONDS = 0.2  # a run of that length is measured once a round, in fewer rounds: its noise is small
LONG_ROUNDS = 3
DECODE_STEPS = 16


@dataclasses.dataclass(frozen=True)
class Timing:
    """Median seconds of one operation on both sides, and what the compiler says of ours."""

    what: str
    ours: float
    peer: float
    flops: float = 0.0
    temporary_bytes: int = 0
    roofline: float = 0.0

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    def __str__(self) -> str:
        memory = f", {self.temporary_bytes / 2**20:.1f} MiB temporary" if self.temporary_bytes else ""
        peak = f", {self.roofline:.0%} of the measured matmul rate" if self.roofline else ""
        return (
            f"{self.what} {self.ratio:.2f}x ({self.ours * 1e3:.2f} ms, PyTorch {self.peer * 1e3:.2f} ms{memory}{peak})"
        )


@check("performance", group="timing")
def performance(context: Context) -> Check:
    """The worst ratio of medians <= 1.5 (or the `slowdown` option)."""
    if context.oracle_command is None:
        raise NotRun("timing beside PyTorch needs the live oracle; start the worker with --oracle-command")
    inputs = cast_floats(context.scenario("exact").cases[0].inputs, np.float32)
    runner = Runner(context.package.build(**context.package.overrides("float32", matmul_precision="default")))
    rate = matmul_rate()
    with Peer(context.oracle_command) as peer:
        timings = [
            interleave(peer, what, run, given, rate, compiled, **fields)
            for what, run, given, compiled, fields in operations(context, runner, inputs)
        ]
    context.save_evidence("performance", [dataclasses.asdict(t) | {"ratio": t.ratio} for t in timings])
    _store_trace(context, runner, inputs)
    limit = float(context.options.get("slowdown", tolerance.SLOWDOWN))
    worst = max(timings, key=lambda timing: timing.ratio)
    detail = f"{'; '.join(map(str, timings))}; {cpus()} CPUs each"
    if worst.ratio > limit:
        detail += f"; slowest modules: {slowest_modules(context, inputs)}"
    return Check.of("performance", worst.ratio, limit, detail)


def operations(context: Context, runner: Runner, inputs: dict[str, Any]):
    """(name, our run, the peer's inputs, compiled program or None, fields of the peer's request)."""
    forward, compiled = forward_run(runner, inputs)
    found = [("forward", forward, inputs, compiled, {})]
    if context.oracle.facts.get("trainable"):
        step, compiled = training_run(context, inputs)
        found.append(("training_step", step, inputs, compiled, {}))
    generate = context.package.submodule("generate")
    if generate is not None and "cache" in context.oracle:
        prompt = context.oracle.get("cache").cases[0].inputs
        if set(prompt) - {"input_ids", "use_cache"}:
            return found
        ids = prompt["input_ids"]

        def decode() -> np.ndarray:
            return np.asarray(generate.generate(runner.model, ids.tolist(), DECODE_STEPS))

        found.append(("decode", decode, {"input_ids": ids}, None, {"steps": DECODE_STEPS}))
    return found


def interleave(
    peer: Peer, what: str, run: Callable[[], Any], inputs: dict[str, Any], rate: float, compiled: Any, **fields: Any
) -> Timing:
    """Alternate rounds of PyTorch and ours, each after a warm-up; long runs are measured once a round."""
    run()
    repeat = REPEAT if max(_measured(run), *peer.seconds(what, inputs, 1, **fields)) < LONG_SECONDS else 1
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS if repeat > 1 else LONG_ROUNDS):
        # Each request for training starts a new optimizer, whose first step allocates.
        warm_up = repeat > 1 or what == "training_step"
        theirs += peer.seconds(what, inputs, repeat, warm_up=warm_up, **fields)
        ours += [_measured(run) for _ in range(repeat)]
    seconds = statistics.median(ours)
    flops, memory = _costs(compiled)
    return Timing(what, seconds, statistics.median(theirs), flops, memory, flops / seconds / rate if flops else 0.0)


def _measured(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def forward_run(runner: Runner, inputs: dict[str, Any]) -> tuple[Callable[[], Any], Any]:
    traced, static = split_static(runner.model, inputs)
    function, arrays = runner.function(static), to_jax(traced)
    return lambda: jax.block_until_ready(function(runner.state, arrays)), function.lower(runner.state, arrays).compile()


def training_run(context: Context, inputs: dict[str, Any]) -> tuple[Callable[[], Any], Any]:
    """One AdamW step over donated state; the loss is the mean of all floating outputs, as large as the peer's."""
    model = context.package.fresh(**context.package.overrides("float32", matmul_precision="default"))
    optimizer = optax.adamw(1e-3)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    traced, static = split_static(model, inputs)

    def loss(params, rest, traced):
        outputs = named_outputs(nnx.merge(graph, params, rest, copy=True)(**traced, **static))
        floating = {n: v for n, v in outputs.items() if jnp.issubdtype(v.dtype, jnp.floating)}
        return weighted_loss(floating, {n: jnp.ones((), v.dtype) for n, v in floating.items()})

    def step(params, moments, rest, traced):
        value, grads = jax.value_and_grad(loss)(params, rest, traced)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, value

    compiled = (
        jax.jit(step, donate_argnums=(0, 1)).lower(params, optimizer.init(params), rest, to_jax(traced)).compile()
    )
    held = {"state": (params, optimizer.init(params)), "inputs": to_jax(traced)}

    def run() -> None:
        *state, value = compiled(*held["state"], rest, held["inputs"])
        held["state"] = tuple(state)
        jax.block_until_ready((state, value))

    return run, compiled


def _costs(compiled: Any) -> tuple[float, int]:
    if compiled is None:
        return 0.0, 0
    costs, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    return float(costs.get("flops", 0.0)), int(getattr(memory, "temp_size_in_bytes", 0))


def matmul_rate(size: int = 512) -> float:
    """Floating operations a second of a float32 product on this machine: what a roofline fraction is taken of."""
    a = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(product(a))
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def _store_trace(context: Context, runner: Runner, inputs: dict[str, Any]) -> None:
    """A profiler trace of one forward, beside the results."""
    run, _ = forward_run(runner, inputs)
    with jax.profiler.trace(str(context.out.parent / "trace")):
        run()


def slowest_modules(context: Context, inputs: dict[str, Any], count: int = 3) -> str:
    """Module classes by their own time, measured op by op (children's time taken off)."""
    model = context.package.build(**context.package.overrides("float32", scan_layers=False))
    own: dict[str, float] = {}
    clock = [time.perf_counter()]

    def observe(fqn: str, call: int, module: nnx.Module, output: Any) -> None:
        jax.block_until_ready(list(named_outputs(output).values()))
        now = time.perf_counter()
        own[type(module).__name__] = own.get(type(module).__name__, 0.0) + now - clock[0]
        clock[0] = now

    arguments = to_jax(accepted(model, inputs))
    with watching(model, observe):
        model(**arguments)  # compiles the single operations
        own.clear()
        clock[0] = time.perf_counter()
        model(**arguments)
    total = sum(own.values()) or 1.0
    ranked = sorted(own.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in ranked)
