"""Transformer layers, stacks and the whole against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter.support import transformer, transformer_layers
from maxcode.converter.support.leaves import leaf_paths
from maxcode.converter.support.module import abstract_parameters
from maxcode.converter.support.random import key_scope
from tests.converter.support.torch_trees import assert_same_tree

HIDDEN = torch.tensor([[False, False, True, True, False], [False, True, False, False, True]])
CAUSAL = torch.triu(torch.full((5, 5), -torch.inf, dtype=torch.float64), 1)


def layer(name, *args, **options):
    torch.manual_seed(0)
    made = lambda c: getattr(transformer_layers, name)(*args, **options, config=c, rngs=nnx.Rngs(0))  # noqa: E731
    return made, getattr(torch.nn, name)(*args, **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True, "activation": "gelu", "batch_first": True}, {"bias": False, "layer_norm_eps": 0.1}],
)
@pytest.mark.parametrize("masks", [{}, {"src_mask": CAUSAL, "is_causal": True}])
def test_encoder_layer(options, masks):
    pair = layer("TransformerEncoderLayer", 8, 2, 12, 0.1, **options)
    shape = (2, 5, 8) if options.get("batch_first") else (5, 2, 8)
    assert_same_tree(*pair, torch.randn(shape), **masks)


def test_encoder_layer_with_padding_trains():
    pair = layer("TransformerEncoderLayer", 8, 2, 12, 0.0, batch_first=True)
    assert_same_tree(*pair, torch.randn(2, 5, 8), src_mask=CAUSAL < 0, src_key_padding_mask=HIDDEN, training=True)


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True, "activation": "gelu", "batch_first": True, "bias": False}]
)
def test_decoder_layer(options):
    pair = layer("TransformerDecoderLayer", 8, 2, 12, **options)
    given = torch.randn(5, 2, 8), torch.randn(4, 2, 8)
    given = tuple(x.transpose(0, 1) for x in given) if options.get("batch_first") else given
    masks = {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_mask": torch.randn(5, 4)}
    assert_same_tree(*pair, *given, **masks, memory_key_padding_mask=HIDDEN[:, 1:])


def test_own_activation():
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(8, 2, 12, activation=torch.tanh)
    make = lambda c: transformer_layers.TransformerEncoderLayer(  # noqa: E731
        8, 2, 12, activation=jnp.tanh, config=c, rngs=nnx.Rngs(0)
    )
    assert_same_tree(make, module, torch.randn(5, 2, 8))


# Masks of stacks are boolean here: torch drops one that it finds to be the causal one, and with it its gradient.
def stack(kind, norm=True):
    """A stack of two layers whose weights differ."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, f"Transformer{kind}Layer")(8, 2, 12, batch_first=True)
    module = getattr(torch.nn, f"Transformer{kind}")(theirs, 2, norm=torch.nn.LayerNorm(8) if norm else None)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)

    def make(c):
        ours = getattr(transformer_layers, f"Transformer{kind}Layer")
        ours = ours(8, 2, 12, batch_first=True, config=c, rngs=nnx.Rngs(0))
        after = transformer.LayerNorm(8, config=c) if norm else None
        return getattr(transformer, f"Transformer{kind}")(ours, 2, norm=after, config=c, rngs=nnx.Rngs(0))

    return make, module


@pytest.mark.parametrize("masks", [{"mask": CAUSAL < 0}, {"src_key_padding_mask": HIDDEN}])
def test_encoder(masks):
    assert_same_tree(*stack("Encoder", norm="mask" in masks), torch.randn(2, 5, 8), **masks)


def test_decoder():
    masks = {"tgt_mask": CAUSAL < 0, "memory_key_padding_mask": HIDDEN[:, 1:]}
    assert_same_tree(*stack("Decoder"), torch.randn(2, 5, 8), torch.randn(2, 4, 8), **masks)


def test_transformer():
    torch.manual_seed(0)
    sizes = (8, 2, 1, 2, 12)
    make = lambda c: transformer.Transformer(*sizes, norm_first=True, config=c, rngs=nnx.Rngs(0))  # noqa: E731
    module = torch.nn.Transformer(*sizes, norm_first=True)
    masks = {"tgt_mask": CAUSAL < 0, "src_key_padding_mask": HIDDEN[:, 1:], "memory_key_padding_mask": HIDDEN[:, 1:]}
    found = assert_same_tree(make, module, torch.randn(4, 2, 8), torch.randn(5, 2, 8), **masks)
    want = module.generate_square_subsequent_mask(4)
    np.testing.assert_array_equal(found.generate_square_subsequent_mask(4), want)


def test_copies_share_nothing_and_need_no_weights():
    make, module = stack("Encoder")
    built = make(None)
    assert built.layers[0].linear1.kernel is not built.layers[1].linear1.kernel
    np.testing.assert_array_equal(built.layers[0].linear1.weight, built.layers[1].linear1.weight)
    with abstract_parameters():
        leaves = leaf_paths(make(None))
    assert len(leaves) == len(list(module.parameters()))
    assert isinstance(jax.tree.leaves(nnx.state(nnx.eval_shape(lambda: make(None))))[0], jax.ShapeDtypeStruct)


def test_dropout_everywhere_in_training():
    make, _ = layer("TransformerEncoderLayer", 8, 2, 12, 1.0)
    built, x = make(None).train(), jax.random.normal(jax.random.key(0), (5, 2, 8))
    np.testing.assert_allclose(built(x), built.norm2(built.norm1(x)), atol=1e-5)
    some = transformer_layers.TransformerDecoderLayer(8, 2, 12, rngs=nnx.Rngs(0)).train()
    with key_scope(jax.random.key(0)):
        assert (some(x, x) != some.eval()(x, x)).any()


def test_unknown_activation():
    with pytest.raises(ValueError, match="tanh"):
        transformer_layers.TransformerEncoderLayer(8, 2, 12, activation="tanh", rngs=nnx.Rngs(0))
