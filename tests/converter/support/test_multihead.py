"""Multi-head attention against torch: projections, masks, extra keys, weights."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter.support.leaves import leaf_paths
from maxcode.converter.support.multihead import MultiheadAttention
from maxcode.converter.support.random import key_scope
from tests.converter.support.torch_trees import assert_same_tree

HIDDEN = torch.tensor([[False, False, True, True, False], [False, True, False, False, True]])
CAUSAL = torch.triu(torch.full((4, 5), -torch.inf, dtype=torch.float64), 1)
SQUARE = torch.triu(torch.full((5, 5), -torch.inf, dtype=torch.float64), 1)


def both(*args, **options):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(*args, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return lambda c: MultiheadAttention(*args, **options, config=c, rngs=nnx.Rngs(0)), module


def inputs(kdim=6, vdim=6):
    """Queries [4, 2, 6], keys and values [5, 2, ...]."""
    return torch.randn(4, 2, 6), torch.randn(5, 2, kdim), torch.randn(5, 2, vdim)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False, "kdim": 3, "vdim": 8},
        {"add_bias_kv": True, "add_zero_attn": True},
        {"kdim": 3, "add_bias_kv": True},
    ],
)
def test_options(options):
    given = inputs(options.get("kdim", 6), options.get("vdim", 6))
    mask = torch.randn(4, 4, 5)
    assert_same_tree(*both(6, 2, **options), *given, key_padding_mask=HIDDEN, attn_mask=mask)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", [{}, {"attn_mask": CAUSAL < 0}, {"key_padding_mask": HIDDEN, "attn_mask": CAUSAL}])
def test_masks(masks, need_weights):
    options = {"need_weights": need_weights, "average_attn_weights": False}
    assert_same_tree(*both(6, 3), *inputs(), **masks, **options)


@pytest.mark.parametrize("need_weights", [True, False])
def test_self_attention(need_weights):
    class Itself(torch.nn.MultiheadAttention):
        def forward(self, x, **masks):
            return super().forward(x, x, x, **masks)

    class Ours(MultiheadAttention):
        def __call__(self, x, **masks):
            return super().__call__(x, x, x, **masks)

    torch.manual_seed(0)
    pair = (
        lambda c: Ours(6, 2, 0.1, batch_first=True, config=c, rngs=nnx.Rngs(0)),
        Itself(6, 2, 0.1, batch_first=True),
    )
    assert_same_tree(*pair, torch.randn(2, 5, 6), key_padding_mask=HIDDEN, need_weights=need_weights)
    hint = {"attn_mask": SQUARE, "is_causal": True}
    assert_same_tree(*pair, torch.randn(2, 5, 6), **hint, need_weights=need_weights)


def test_unbatched():
    given = [x[:, 0] for x in inputs()]
    masks = {"key_padding_mask": HIDDEN[0], "attn_mask": torch.randn(2, 4, 5)}
    assert_same_tree(*both(6, 2), *given, **masks)
    assert_same_tree(*both(6, 2, batch_first=True), *given, need_weights=False)


def test_a_query_that_sees_no_key_gives_zeros():
    mask = CAUSAL < 0
    mask[1] = True
    assert_same_tree(*both(6, 2), *inputs(), attn_mask=mask, need_weights=False)


def test_a_query_that_sees_no_key_has_no_weights():
    make, _ = both(6, 2)
    x = jnp.ones((3, 1, 6))
    y, weights = make(None)(x, x, x, attn_mask=jnp.array([[True] * 3, [False] * 3, [False] * 3]))
    assert jnp.isnan(y[0]).all()
    assert jnp.isnan(weights[0, 0]).all()
    assert not jnp.isnan(y[1:]).any()


def test_a_hint_stands_for_the_causal_mask():
    """Without padding and weights torch goes by the hint and does not look at the mask."""
    other = torch.zeros(4, 5, dtype=torch.float64)
    assert_same_tree(*both(6, 2), *inputs(), attn_mask=other, is_causal=True, need_weights=False)


def test_dropout_acts_on_the_weights():
    make, _ = both(6, 2, dropout=1.0)
    layer, x = make(None).train(), jnp.ones((3, 1, 6))
    y, weights = layer(x, x, x)
    assert (weights == 0).all()
    np.testing.assert_allclose(y, jnp.broadcast_to(layer.out_proj.bias, y.shape), atol=1e-6)
    some = MultiheadAttention(6, 2, 0.5, rngs=nnx.Rngs(0)).train()
    with pytest.raises(RuntimeError, match="key scope"):
        some(x, x, x)
    with key_scope(nnx.Rngs(0).params()):
        assert set(np.unique((np.asarray(some(x, x, x, average_attn_weights=False)[1]) * 3).round(4))) <= {0, 2}


def test_names_are_torchs():
    make, module = both(6, 2, add_bias_kv=True)
    names = {name.replace("out_proj.weight", "out_proj.kernel") for name, _ in module.named_parameters()}
    assert set(leaf_paths(make(None))) == names


def test_bad_arguments():
    layer, x = both(6, 2)[0](None), jnp.ones((3, 1, 6))
    with pytest.raises(ValueError, match="heads"):
        MultiheadAttention(6, 4, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="is_causal"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(ValueError, match="attn_mask"):
        layer(x, x, x, attn_mask=jnp.zeros((2, 2)))
    with pytest.raises(ValueError, match="key_padding_mask"):
        layer(x, x, x, jnp.zeros((2, 3), bool))
    with pytest.raises(TypeError, match="int32"):
        layer(x, x, x, attn_mask=jnp.zeros((3, 3), int))
