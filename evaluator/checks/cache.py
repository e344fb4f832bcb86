"""`cache`: prefill and single steps equal the full forward; greedy tokens equal PyTorch's."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.outputs import compare_outputs
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.package import cast_floats, named_outputs, new_cache, split_static, static_key, to_jax
from maxcode.evaluator.recording import Case
from maxcode.evaluator.verdict import Check

TRACES = 3  # prefill, step, and the first step where a cache's state appears (its structure then differs)


class Decoder:
    """One model with its cache: `prefill`, then `step` by `step`; compiled once for each of the two shapes."""

    def __init__(self, model: nnx.Module, fixed: dict[str, Any], batch: int, length: int, prompt_only: Sequence = ()):
        self.model, self.fixed, self.prompt_only = model, fixed, prompt_only
        self.graph, self.state = nnx.split(model)
        self.cache = new_cache(model, fixed, batch, length)
        self.traces = 0
        self._calls: dict[str, Any] = {}

    def __call__(self, **inputs: Any) -> dict[str, jax.Array]:
        """Outputs for the next tokens; the cache moves on. `prompt_only` inputs take part in the first call alone."""
        traced, static = split_static(self.model, self.fixed | inputs)
        outputs, self.cache = self._compiled(static)(self.state, self.cache, to_jax(traced))
        self.fixed = {name: value for name, value in self.fixed.items() if name not in self.prompt_only}
        return outputs

    def _compiled(self, static: dict[str, Any]) -> Any:
        def call(state, cache, inputs):
            self.traces += 1
            output = nnx.merge(self.graph, state)(**inputs, **static, cache=cache)
            return named_outputs(output), output.cache

        return self._calls.setdefault(static_key(static), jax.jit(call))


@check("cache", group="x64", cheap=True)
def cache(context: Context) -> Check:
    """Every position of prefill + decode within the exact limit; greedy tokens all equal."""
    case = context.scenario("cache").cases[0]
    context.package.lift()
    model = context.package.build(**context.package.overrides("float64"))
    outcome, traces = _stepwise(context, case, model)
    equal, tokens = _greedy(context, case, model)
    ok = equal == tokens and traces <= TRACES
    detail = f"{case.record['length']} + {case.record['steps']} positions, worst {outcome}"
    detail += f"; {equal} of {tokens} greedy tokens equal"
    detail += "" if traces <= TRACES else f"; {traces} traces, expected at most {TRACES}"
    generated, said = _package_generate(context, case, model)
    return Check.of("cache", outcome.worst.error, tolerance.EXACT, detail + said, ok=ok and generated)


def _split(case: Case) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Inputs that stay the same, and the prompt of those that grow."""
    inputs = cast_floats(case.inputs, np.float64)
    growing = case.record["step_inputs"]
    return {k: v for k, v in inputs.items() if k not in growing}, {k: inputs[k] for k in growing}


def stepwise(case: Case, model: nnx.Module) -> tuple[list[dict[str, jax.Array]], int]:
    """Outputs of the prefill and of every step of a recorded case, and how often the model was traced."""
    fixed, prompt = _split(case)
    length, steps = case.record["length"], case.record["steps"]
    batch = next(iter(prompt.values())).shape[0]
    decoder = Decoder(model, fixed, batch, length + steps, case.record.get("prompt_only", ()))
    following = case.named("step_inputs")
    parts = [decoder(**prompt)]
    parts += [decoder(**{name: value[:, i : i + 1] for name, value in following.items()}) for i in range(steps)]
    return parts, decoder.traces


def _stepwise(context: Context, case: Case, model: nnx.Module):
    length, steps = case.record["length"], case.record["steps"]
    parts, traces = stepwise(case, model)
    expected = {
        n: v
        for n, v in case.outputs.items()
        if v.ndim > 1 and v.shape[1] == length + steps and _grows(parts, n, length)
    }
    actual = {name: np.concatenate([np.asarray(part[name]) for part in parts], 1) for name in expected}
    return compare_outputs(actual, expected, logits=context.oracle.facts.get("logits")), traces


def _grows(parts: list[dict[str, jax.Array]], name: str, length: int) -> bool:
    """Whether an output has one entry per new position (attention maps and encoder outputs have not)."""
    shapes = [part[name].shape for part in parts if name in part]
    return len(shapes) == len(parts) and shapes[0][1] == length and all(shape[1] == 1 for shape in shapes[1:])


def _greedy(context: Context, case: Case, model: nnx.Module) -> tuple[int, int]:
    """How many of PyTorch's greedy tokens we choose, each from our own previous ones."""
    expected = case.get("greedy")
    if expected is None:
        return 0, 0
    fixed, prompt = _split(case)
    name = next((n for n in ("decoder_input_ids", "input_ids") if n in prompt), next(iter(prompt)))
    logits, later = context.oracle.facts["logits"], case.record.get("prompt_only", ())
    decoder = Decoder(model, fixed, expected.shape[0], case.record["length"] + expected.shape[1], later)
    token = decoder(**prompt)[logits][:, -1].argmax(-1)
    tokens = [token]
    companions = {n: np.zeros_like(v[:, :1]) for n, v in prompt.items() if n != name}  # new tokens are text
    for _ in range(expected.shape[1] - 1):
        token = decoder(**companions | {name: token[:, None]})[logits][:, -1].argmax(-1)
        tokens.append(token)
    chosen = np.asarray(jnp.stack(tokens, 1))
    return int((chosen == expected).sum()), expected.size


def _package_generate(context: Context, case: Case, model: nnx.Module) -> tuple[bool, str]:
    """The package's own `generate` on the same prompt, where it has one and the prompt is all that it needs."""
    generate = context.package.submodule("generate")
    expected = case.get("greedy")
    if generate is None or expected is None or set(case.inputs) - {"input_ids", "use_cache"}:
        return True, ""
    rows = generate.generate(model, case.inputs["input_ids"].tolist(), expected.shape[1])
    pairs = zip(rows, expected, strict=True)
    equal = sum(int((np.asarray(row) == wanted).sum()) for row, wanted in pairs if len(row) == len(wanted))
    return equal == expected.size, f"; generate(): {equal} of {expected.size} equal"
