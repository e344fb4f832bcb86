"""From logits to the next token: greedy, or sampled with the usual filters, applied in the order of transformers."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# Settings that would change the tokens and are not computed here, with the value that changes nothing.
_IGNORED = dict.fromkeys(
    """forced_bos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens bad_words_ids sequence_bias
    guidance_scale penalty_alpha min_new_tokens exponential_decay_length_penalty top_h""".split()  # noqa: SIM905
) | {"num_beams": 1, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1}
_IGNORED |= {"typical_p": 1, "epsilon_cutoff": 0, "eta_cutoff": 0, "min_length": 0}


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; hashable, so that it can be a static argument. `top_k=0` keeps all tokens."""

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    eos_token_id: tuple[int, ...] = ()
    pad_token_id: int = 0

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Sampling":
        """From the names of generation_config.json; None means the default. Warns about settings that are not computed
        here.
        """
        ignored = {k: settings[k] for k, v in _IGNORED.items() if settings.get(k) not in (None, v)}
        if ignored:
            warnings.warn(f"generation settings without effect here: {ignored}; tokens may differ", stacklevel=2)
        names = [field.name for field in dataclasses.fields(cls)]
        chosen = {name: settings[name] for name in names if settings.get(name) is not None}
        eos = chosen.get("eos_token_id", ())
        chosen["eos_token_id"] = tuple(eos) if isinstance(eos, (list, tuple)) else (eos,)
        if chosen.get("temperature") == 0:
            chosen |= {"do_sample": False, "temperature": 1.0}
        chosen.setdefault("pad_token_id", next(iter(chosen["eos_token_id"]), 0))
        return cls(**chosen)

    @property
    def plan(self) -> "Sampling":
        """What is compiled for: the settings without the numbers that may change from call to call (see `numbers`)."""
        return dataclasses.replace(
            self,
            temperature=1.0,
            top_p=1.0 if self.top_p >= 1 else 0.5,
            min_p=0.0 if self.min_p <= 0 else 0.5,
            repetition_penalty=1.0 if self.repetition_penalty == 1 else 2.0,
        )

    def numbers(self) -> dict[str, Float[Array, ""]]:
        """The numbers that are traced."""
        names = ("temperature", "top_p", "min_p", "repetition_penalty")
        return {name: jnp.asarray(getattr(self, name), jnp.float32) for name in names}


def penalise_seen(
    logits: Float[Array, "b v"], seen: Bool[Array, "b v"], penalty: Float[Array, ""]
) -> Float[Array, "b v"]:
    """Make tokens that occurred less likely: positive logits are divided by `penalty`, negative ones multiplied."""
    penalty = penalty.astype(logits.dtype)
    return jnp.where(seen, jnp.where(logits < 0, logits * penalty, logits / penalty), logits)


def candidates(
    logits: Float[Array, "b v"], plan: Sampling, numbers: Mapping[str, Array]
) -> tuple[Float[Array, "b c"], Int[Array, "b c"]]:
    """Logits of the tokens that may be sampled (-inf: may not), and their ids, likeliest first.

    Temperature, then top-k, then top-p, then min-p. Among equal logits at the k-th place top-k keeps k, where
    transformers keeps all.
    """
    logits = logits / numbers["temperature"].astype(logits.dtype)
    vocabulary = logits.shape[-1]
    logits, ids = lax.top_k(logits, min(plan.top_k, vocabulary) if plan.top_k > 0 else vocabulary)
    if plan.top_p < 1:
        probabilities = jax.nn.softmax(logits, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        keep = (before < numbers["top_p"]).at[:, 0].set(True)
        logits = jnp.where(keep, logits, -jnp.inf)
    if plan.min_p > 0:
        probabilities = jax.nn.softmax(logits, axis=-1)
        logits = jnp.where(probabilities < numbers["min_p"] * probabilities[:, :1], -jnp.inf, logits)
    return logits, ids


def choose(
    logits: Float[Array, "b v"],
    plan: Sampling,
    numbers: Mapping[str, Array],
    key: Array,
    seen: Bool[Array, "b v"] | None = None,
) -> Int[Array, " b"]:
    """The next token of each row, int32."""
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if seen is not None:
        logits = penalise_seen(logits, seen, numbers["repetition_penalty"])
    if not plan.do_sample:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits, ids = candidates(logits, plan, numbers)
    chosen = jax.random.categorical(key, logits, axis=-1)
    return jnp.take_along_axis(ids, chosen[:, None], axis=-1)[:, 0].astype(jnp.int32)
