"""A grouped matrix product for CPUs, where `jax.lax.ragged_dot` multiplies every row by every group's matrix.

Rows, sorted by group, are cut into blocks of one group each (a group's last block is padded), and one loop multiplies
each block by its group's matrix. At most `n // block + min(n, groups)` blocks exist; unused ones are skipped. The
work is that of n rows plus padding, whatever the number of groups, and a decode step reads only the matrices it needs.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_LARGEST_BLOCK = 128


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["group", "rows", "used", "filled", "home"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Blocks:
    """How n sorted rows are cut into `count` blocks of `size` rows."""

    group: Int[Array, " count"]  # the group of a block
    rows: Int[Array, "count size"]  # its rows; padding reads some row that exists
    used: Bool[Array, " count"]
    filled: Bool[Array, "count size"]  # False for padding
    home: Int[Array, " n"]  # where a row stands among all blocks' rows


def cut_into_blocks(sizes: Int[Array, " groups"], num_rows: int) -> Blocks:
    """Blocks for groups of `sizes` rows that lie one after another; `num_rows` may exceed their sum."""
    groups = sizes.shape[0]
    size = min(_LARGEST_BLOCK, 1 << max(0, (num_rows // groups).bit_length() - 1))
    count = num_rows // size + min(num_rows, groups)
    start = jnp.cumsum(sizes) - sizes
    blocks_until = jnp.cumsum(-(-sizes // size))
    first = blocks_until - -(-sizes // size)

    block = jnp.arange(count)
    group = jnp.minimum(jnp.searchsorted(blocks_until, block, side="right"), groups - 1)
    used = block < blocks_until[-1]
    within = (block - first[group])[:, None] * size + jnp.arange(size)
    filled = used[:, None] & (within < sizes[group][:, None])
    rows = jnp.clip(start[group][:, None] + within, 0, num_rows - 1)

    row = jnp.arange(num_rows)
    of_row = jnp.minimum(jnp.searchsorted(jnp.cumsum(sizes), row, side="right"), groups - 1)
    home = (first * size)[of_row] + row - start[of_row]
    return Blocks(group, rows, used, filled, jnp.clip(home, 0, count * size - 1))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def blocked_product(
    x: Float[Array, "n i"], weight: Float[Array, "groups a b"], blocks: Blocks, transposed: bool
) -> Float[Array, "n o"]:
    """Each row times its group's matrix ([i, o], or [o, i] if `transposed`). Rows of no group get arbitrary values."""
    padded = jnp.where(blocks.filled[..., None], x[blocks.rows], 0)
    out_features = weight.shape[1 if transposed else 2]

    def multiply(block):
        rows, group, used = block

        def product():
            matrix = weight[group]
            return rows @ (matrix.T if transposed else matrix)

        return jax.lax.cond(used, product, lambda: jnp.zeros((rows.shape[0], out_features), x.dtype))

    out = jax.lax.map(multiply, (padded, blocks.group, blocks.used))
    return out.reshape(-1, out_features)[blocks.home]


def _forward(x, weight, blocks, transposed):
    return blocked_product(x, weight, blocks, transposed), (x, weight, blocks)


def _backward(transposed, saved, gradient):
    x, weight, blocks = saved
    rows = jnp.where(blocks.filled[..., None], x[blocks.rows], 0)
    slopes = jnp.where(blocks.filled[..., None], gradient[blocks.rows], 0)

    def accumulate(total, block):
        left, right, group, used = block

        def add():
            return total.at[group].add(right.T @ left if transposed else left.T @ right)

        return jax.lax.cond(used, add, lambda: total), None

    weight_gradient, _ = jax.lax.scan(accumulate, jnp.zeros_like(weight), (rows, slopes, blocks.group, blocks.used))
    return blocked_product(gradient, weight, blocks, not transposed), weight_gradient, None


blocked_product.defvjp(_forward, _backward)
