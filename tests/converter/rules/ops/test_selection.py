"""Functions whose result's shape values decide, on concrete arrays: as torch's."""

import ast

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.rule import NoRule, apply_op
from maxcode.converter.rules.ops import selection

X = np.array([[0, 3, 3], [1, 1, 0]])


def same(found, expected):
    found = found if isinstance(found, tuple) else (found,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs.numpy())


@pytest.mark.parametrize(
    "x", [X, X[0], np.zeros((0,), int), np.zeros((2, 2), int)], ids=["2-d", "1-d", "none", "zeros"]
)
def test_indices_and_distinct_values(x):
    ours, theirs = jnp.asarray(x), torch.from_numpy(x)
    same(selection.nonzero(ours), theirs.nonzero())
    same(selection.nonzero_tuple(ours), theirs.nonzero(as_tuple=True))
    same(selection.where_indices(ours > 1), torch.where(theirs > 1))
    same(selection.masked_select(ours, ours > 0), torch.masked_select(theirs, theirs > 0))
    same(selection.unique(ours), theirs.unique())
    same(selection.unique_consecutive(ours), theirs.unique_consecutive())
    if x.size:
        options = {"return_inverse": True, "return_counts": True}
        same(selection.unique(ours, **options), theirs.unique(**options))
        same(selection.unique_consecutive(ours, **options), theirs.unique_consecutive(**options))
        same(selection.bincount(ours.reshape(-1)), theirs.reshape(-1).bincount())


def test_unique_along_an_axis():
    x = np.array([[1, 1, 2], [0, 0, 5]])
    same(selection.unique(jnp.asarray(x), dim=1), torch.from_numpy(x).unique(dim=1))


def test_masks_broadcast():
    mask = np.array([True, False, True])
    expected = torch.masked_select(torch.from_numpy(X), torch.from_numpy(mask))
    same(selection.masked_select(jnp.asarray(X), jnp.asarray(mask)), expected)


@pytest.mark.parametrize("name", ["torch.nonzero", "torch.unique", "torch.masked_select"])
def test_they_convert_only_where_values_are_known(name):
    arguments = [ast.parse(a, mode="eval").body for a in ("x", "y")][: 2 if "mask" in name else 1]
    with pytest.raises(NoRule, match="depends on data"):
        apply_op(name, arguments, {})
    assert apply_op(name, arguments, {}, concrete=True).expr
