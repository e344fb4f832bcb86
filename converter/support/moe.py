"""Routed experts without capacity limits: rows sorted by expert, one grouped product per weight.

`group_by_expert` turns the router's choice into an `ExpertGroups` record, whose methods multiply the sorted rows and
sum them up again. All shapes are static: `n = tokens * k` rows whatever the routing. Rows routed to index
`num_experts` (the mark for "no expert") sort behind all others and contribute nothing.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import RaggedDotDimensionNumbers
from jaxtyping import Array, Bool, Float, Int

from .grouped import Blocks, blocked_product, cut_into_blocks
from .settings import experts_backend

BACKENDS = ("ragged", "blocked", "dense")

# contract the last axis of the rows with the last ("o i") or the middle ("i o") axis of the expert weights
_OUT_IN, _IN_OUT = (
    RaggedDotDimensionNumbers(
        dot_dimension_numbers=(((1,), (axis,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[0]
    )
    for axis in (2, 1)
)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["token", "slot", "expert", "sizes", "valid", "token_order", "blocks"],
    meta_fields=["num_tokens", "backend"],
)
@dataclasses.dataclass(frozen=True)
class ExpertGroups:
    """Routed rows in expert order (rows of one expert keep token order)."""

    token: Int[Array, " n"]  # the token that a row comes from
    slot: Int[Array, " n"]  # which of the token's k choices it is
    expert: Int[Array, " n"]  # its expert; rows without expert read expert num_experts - 1
    sizes: Int[Array, " experts"]  # rows per expert
    valid: Bool[Array, " n"]  # False for rows without expert
    token_order: Int[Array, " n"]  # gathers rows back to [tokens, k], a token's rows in expert order
    blocks: Blocks | None  # for the "blocked" backend
    num_tokens: int
    backend: str

    def linear(
        self,
        x: Float[Array, "n i"],
        weight: Float[Array, "experts o i"],
        bias: Float[Array, "experts o"] | None = None,
    ) -> Float[Array, "n o"]:
        """Each row times its expert's weight in torch's linear layout, plus its expert's bias."""
        out = self._product(x, weight, _OUT_IN)
        return out if bias is None else out + bias[self.expert]

    def matmul(self, x: Float[Array, "n i"], weight: Float[Array, "experts i o"]) -> Float[Array, "n o"]:
        """Each row times its expert's [in, out] matrix."""
        return self._product(x, weight, _IN_OUT)

    def combine(self, rows: Float[Array, "n e"]) -> Float[Array, "tokens e"]:
        """Sum each token's rows. Added in expert order, as a loop over the experts does, and without scatter."""
        rows = jnp.where(self.valid.reshape(-1, *[1] * (rows.ndim - 1)), rows, 0)
        rows = rows[self.token_order].reshape(self.num_tokens, -1, *rows.shape[1:])
        return functools.reduce(jnp.add, (rows[:, i] for i in range(rows.shape[1])))

    def _product(self, x, weight, dimensions):
        weight = weight.astype(x.dtype)
        if self.backend == "ragged":
            return jax.lax.ragged_dot_general(x, weight, self.sizes, dimensions)
        if self.backend == "blocked":
            out: Any = blocked_product(x, weight, self.blocks, dimensions is _OUT_IN)
            return jnp.where(self.valid[:, None], out, 0)
        contracted = "oi" if dimensions is _OUT_IN else "io"
        every = jnp.einsum(f"ni,e{contracted}->eno", x, weight)  # every row through every expert
        chosen = every[self.expert, jnp.arange(x.shape[0])]
        return jnp.where(self.valid[:, None], chosen, 0)


def group_by_expert(
    top_k_index: Int[Array, "*tokens k"], num_experts: int, *, backend: str | None = None
) -> ExpertGroups:
    """Sort the router's choices by expert.

    Args:
        top_k_index: the k experts chosen for each token; leading axes are flattened. An index of `num_experts` (or
            more) or below 0 means no expert.
        num_experts: number of experts held by the weights.
        backend: "ragged" is `jax.lax.ragged_dot`, made for accelerators; "blocked" a loop over blocks of rows, made for
            CPUs; "dense" sends every row through every expert, which pays for very few experts or rows only; "auto"
            takes "blocked" on a CPU and "ragged" elsewhere.

    Raises:
        ValueError: for an unknown backend.
    """
    backend = experts_backend.get() if backend is None else backend
    if backend == "auto":
        backend = "blocked" if jax.default_backend() == "cpu" else "ragged"
    if backend not in BACKENDS:
        raise ValueError(f"experts backend is {backend!r}, expected auto, {', '.join(BACKENDS)}; set config.experts")
    k = top_k_index.shape[-1]
    choice = top_k_index.reshape(-1).astype(jnp.int32)
    choice = jnp.where((choice < 0) | (choice > num_experts), num_experts, choice)
    order = jnp.argsort(choice, stable=True)
    token, expert = order // k, choice[order]
    sizes = jnp.bincount(choice, length=num_experts + 1)[:num_experts].astype(jnp.int32)
    return ExpertGroups(
        token=token,
        slot=order % k,
        expert=jnp.minimum(expert, num_experts - 1),
        sizes=sizes,
        valid=expert < num_experts,
        token_order=jnp.argsort(token, stable=True),
        blocks=cut_into_blocks(sizes, choice.size) if backend == "blocked" else None,
        num_tokens=choice.size // k,
        backend=backend,
    )
