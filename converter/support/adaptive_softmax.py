"""Softmax over many classes by frequency: a head over the frequent ones, small tails for the rest."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from .container import ModuleList, Sequential
from .layers import Linear
from .module import Module


class ASMoutput(NamedTuple):
    """Log probability of each target [n], and the mean loss."""

    output: Array
    loss: Array


class AdaptiveLogSoftmaxWithLoss(Module):
    """Adaptive softmax (Grave et al., 2017): frequent classes in the head, each later cluster in a tail."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        cutoffs = [int(cutoff) for cutoff in cutoffs]
        if not cutoffs or cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs {cutoffs}, expected rising numbers below {n_classes}"
            )
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = (*cutoffs, n_classes)
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, config=config, rngs=rngs)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, width, False, config=config, rngs=rngs),
                    Linear(width, size, False, config=config, rngs=rngs),
                )
            )

    def __call__(self, input: Float[Array, "..."], target: Int[Array, "..."]) -> ASMoutput:
        """Log probability of targets [n] for inputs [n, in_features], and its negative mean; also without n."""
        log_probs = self.log_prob(input if input.ndim == 2 else input[None])
        picked = jnp.take_along_axis(log_probs, target.reshape(-1, 1), axis=1)[:, 0]
        output = picked if target.ndim else picked[0]
        return ASMoutput(output, -output.mean())

    def log_prob(self, input: Float[Array, "n in_features"]) -> Float[Array, "n n_classes"]:
        """Log probabilities of all classes."""
        head = jax.nn.log_softmax(self.head(input), axis=1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            cluster = head[:, self.shortlist_size + i, None]
            parts.append(jax.nn.log_softmax(tail(input), axis=1) + cluster)
        return jnp.concatenate(parts, axis=1)

    def predict(self, input: Float[Array, "n in_features"]) -> Int[Array, " n"]:
        """The most likely class of each input."""
        return self.log_prob(input).argmax(axis=1)
