"""Attention whose weights the caller holds, and gradients of softmax by name, against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.rules.ops import activation, attention

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def numbers(*shape):
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape))


def arguments(separate, extra):
    """Positional and keyword arguments of torch's function: 3 queries and 5 keys of 2 rows, 2 heads of 4."""
    weights = {f"{n}_proj_weight": numbers(8, 8) for n in "qkv"} if separate else {}
    packed = None if separate else numbers(24, 8)
    keyed = [numbers(1, 1, 8), numbers(1, 1, 8) * 2] if extra else [None, None]
    query, key, value = numbers(3, 2, 8), numbers(5, 2, 8), numbers(5, 2, 8) * 3
    given = [query, key, value, 8, 2, packed, numbers(24), *keyed, extra, 0.5, numbers(8, 8), numbers(8), False]
    return given, {"use_separate_proj_weight": separate, **weights}


MASKS = {
    "none": {},
    "per_head": {"attn_mask": numbers(4, 3, 5)},
    "padding": {"key_padding_mask": torch.tensor([[0, 0, 1, 0, 1], [1, 0, 0, 0, 0]]).bool(), "need_weights": False},
    "by_head": {"average_attn_weights": False, "attn_mask": torch.ones(3, 5).triu(2).bool()},
}


def ours(tree):
    return jax.tree.map(lambda x: jnp.asarray(x.numpy()) if isinstance(x, torch.Tensor) else x, tree)


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_multi_head_attention_forward(mask, separate, extra):
    given, named = arguments(separate, extra)
    named |= MASKS[mask]
    want = F.multi_head_attention_forward(*given, **named)
    found = attention.multi_head_attention_forward(*ours(given), **ours(named))
    for a, b in zip(found, want, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            np.testing.assert_allclose(a, b.numpy(), 1e-9, 1e-11)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_gradients_of_softmax(name):
    x, cotangent = numbers(3, 4, 5).requires_grad_(), numbers(3, 4, 5) * 2
    y = getattr(torch, name)(x, 1)
    (want,) = torch.autograd.grad(y, x, cotangent)
    found = getattr(activation, f"{name}_gradient")(*ours([cotangent, y.detach()]), 1, jnp.float64)
    np.testing.assert_allclose(found, want.numpy(), 1e-9, 1e-11)
