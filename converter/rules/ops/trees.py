"""Trees of containers (`torch.utils._pytree`): None is a leaf there, as it is in these."""

import jax

from maxcode.converter.rule import helper, op


@helper
def is_none(leaf):
    """Whether a leaf is None."""
    return leaf is None


@op("torch.utils._pytree.tree_flatten")
def tree_flatten(tree):
    return jax.tree.flatten(tree, is_leaf=is_none)


@op("torch.utils._pytree.tree_unflatten")
def tree_unflatten(leaves, treespec):
    return jax.tree.unflatten(treespec, leaves)


@op("torch.utils._pytree.tree_map")
def tree_map(func, tree, *rests):
    return jax.tree.map(func, tree, *rests, is_leaf=is_none)


@op("torch.utils._pytree.tree_leaves")
def tree_leaves(tree):
    return jax.tree.leaves(tree, is_leaf=is_none)
