"""Linear, embedding, layer norms and dropout against torch; parameters, constants, modes."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter.support import layers
from maxcode.converter.support.layers import (
    Buffer,
    Dropout,
    Dropout2d,
    Embedding,
    Identity,
    LayerNorm,
    Linear,
    Module,
    RMSNorm,
    constant,
    full,
    normal,
    param,
)
from maxcode.converter.support.random import key_scope
from tests.converter.support.torch_pairs import DTYPES, array, assert_same, config, copy_weights


def rngs():
    return nnx.Rngs(0)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("bias", [True, False])
def test_linear(dtype, bias):
    layer = assert_same(
        lambda c: Linear(24, 12, bias, config=c, rngs=rngs()), torch.nn.Linear(24, 12, bias), (2, 5, 24), dtype=dtype
    )
    assert (layer.in_features, layer.out_features, layer.dtype) == (24, 12, dtype)
    assert layer.weight.shape == (12, 24)
    assert (layer.bias is None) == (not bias)


def test_16_bit_linear_rounds_once():
    module = torch.nn.Linear(64, 32).bfloat16()
    layer = Linear(64, 32, config=config("bfloat16"), rngs=rngs())
    x = torch.randn(7, 64).bfloat16()
    copy_weights(layer, module)
    np.testing.assert_array_equal(array(module(x)), layer(jnp.asarray(array(x))))


def test_storage_and_compute_dtypes():
    c = SimpleNamespace(dtype="bfloat16", weight_dtype="float32")
    layer = Linear(3, 4, axes=("embed", "mlp"), config=c, rngs=rngs())
    assert layer.kernel[...].dtype == jnp.float32
    assert (layer.weight.dtype, layer.bias.dtype) == (jnp.bfloat16, jnp.bfloat16)
    assert vars(layer)["bias"][...].dtype == jnp.float32
    assert layer(jnp.ones(3, jnp.bfloat16)).dtype == jnp.bfloat16
    assert layer(jnp.ones(3)).dtype == jnp.float32  # no silent repair of a wrong input
    assert layer.kernel.get_metadata()["out_sharding"] == ("embed", "mlp")
    assert vars(layer)["bias"].get_metadata()["out_sharding"] == ("mlp",)


def test_matmul_precision_reaches_the_dot():
    layer = Linear(3, 4, config=SimpleNamespace(matmul_precision="highest"), rngs=rngs())
    assert "HIGHEST" in str(jax.make_jaxpr(layer)(jnp.ones(3)))
    assert "HIGHEST" not in str(jax.make_jaxpr(Linear(3, 4, rngs=rngs()))(jnp.ones(3)))


def test_initial_values_are_those_of_torch():
    layer = Linear(400, 300, rngs=rngs())
    bound = 1 / np.sqrt(400)
    for value in (layer.kernel[...], layer.bias):
        assert bound * 0.97 < jnp.abs(value).max() <= bound
        assert abs(value.std() - bound / np.sqrt(3)) < 0.05 * bound
    ranged = Linear(400, 300, config=SimpleNamespace(initializer_range=0.02), rngs=rngs())
    assert abs(ranged.kernel[...].std() - 0.02) < 0.001
    assert not ranged.bias.any()
    assert abs(Embedding(300, 50, rngs=rngs()).weight.std() - 1) < 0.05


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding(dtype, padding_idx):
    ids = np.asarray([[1, 2, 8], [0, 2, 1]])
    layer = assert_same(
        lambda c: Embedding(9, 4, padding_idx, config=c, rngs=rngs()),
        torch.nn.Embedding(9, 4, padding_idx),
        inputs=[ids],
        dtype=dtype,
    )
    assert layer.padding_idx == (8 if padding_idx == -1 else padding_idx)


def test_embedding_checks_ids_on_request(monkeypatch):
    layer = Embedding(5, 2, rngs=rngs())
    layer(jnp.asarray([-1, 7]))  # not checked by default
    monkeypatch.setattr(layers, "DEBUG_CHECKS", True)
    jax.block_until_ready(jax.jit(lambda ids: layer(ids))(jnp.asarray([0, 4])))
    for bad in (-1, 5):
        with pytest.raises(Exception, match="table of 5 rows"):
            jax.block_until_ready(jax.jit(lambda ids: layer(ids))(jnp.asarray([0, bad])))
            jax.effects_barrier()


def test_embedding_refuses_what_it_does_not_do():
    with pytest.raises(NotImplementedError, match="max_norm"):
        Embedding(5, 2, max_norm=1.0, rngs=rngs())


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("options", [{}, {"eps": 1e-2}, {"bias": False}, {"elementwise_affine": False}])
def test_layer_norm(dtype, options):
    module = torch.nn.LayerNorm((3, 8), **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    assert_same(lambda c: LayerNorm((3, 8), config=c, **options), module, (4, 3, 8), dtype=dtype)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("options", [{}, {"eps": 1e-2}, {"elementwise_affine": False}])
def test_rms_norm(dtype, options):
    module = torch.nn.RMSNorm(8, **options)
    assert_same(lambda c: RMSNorm(8, config=c, **options), module, (4, 3, 8), dtype=dtype)


def test_norms_in_16_bits_keep_what_float32_shows():
    x = jnp.asarray(np.linspace(1000, 1004, 8), jnp.bfloat16)
    expected = torch.nn.functional.layer_norm(torch.from_numpy(np.asarray(x, np.float32)).bfloat16(), (8,))
    np.testing.assert_array_equal(LayerNorm(8, elementwise_affine=False)(x), array(expected))


def test_dropout_statistics_and_modes():
    x = jnp.ones((200, 200), jnp.bfloat16)
    layer = Dropout(0.25)
    assert layer(x) is x
    layer.train()
    with key_scope(jax.random.key(0)):
        y, z = layer(x), layer(x)
    assert y.dtype == x.dtype
    assert abs((y == 0).mean() - 0.25) < 0.01
    assert set(np.unique(np.asarray(y, np.float32))) == {
        0.0,
        np.float32(jnp.asarray(1, jnp.bfloat16) / jnp.asarray(0.75, jnp.bfloat16)),
    }
    assert (y != z).any()
    with pytest.raises(RuntimeError, match="key scope"):
        layer(x)


def test_feature_dropout_drops_channels():
    with key_scope(jax.random.key(0)):
        y = Dropout2d(0.5).train()(jnp.ones((20, 10, 3, 3)))
    kept = (y != 0).reshape(20, 10, -1)
    assert (kept.all(-1) | ~kept.any(-1)).all()
    assert 60 < kept.all(-1).sum() < 140


def test_identity_takes_anything():
    assert Identity(54, unused=True)(7) == 7


class Small(Module):
    def __init__(self, config, *, rngs):
        self.config = config
        self.inner = Linear(2, 2, config=config, rngs=rngs)
        self.items = nnx.List([Dropout(0.1), Identity()])
        self.scale = param(normal((2, 3), 0.1), ("embed", None), config, rngs=rngs)
        self.counts = Buffer(jnp.zeros(3), config=config)
        self.table = constant(jnp.arange(3) / 2)

    def __call__(self, x):
        return self.inner(x) @ self.scale[...] + self.table[...]


SETTINGS = SimpleNamespace(dtype="float32", weight_dtype="bfloat16")


def test_modes_reach_every_module():
    model = Small.from_config(SETTINGS, rngs=rngs())
    assert model.train() is model
    assert all(module.training for module in (model, model.inner, model.items[0]))
    assert not model.eval().items[0].training
    assert len(list(model.parameters())) == 3


def test_constants_are_static_and_hashable():
    model, other = (Small.from_config(SETTINGS, rngs=rngs()) for _ in range(2))
    assert not any(leaf.shape == (3,) and leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(nnx.state(model)))
    assert nnx.graphdef(model) == nnx.graphdef(other)
    assert hash(model.table) == hash(other.table)
    assert constant(np.ones(3)) != constant(np.zeros(3))
    assert constant(np.ones(3)) != constant(np.ones((3, 1)))
    assert model.table[1:].tolist() == [0.5, 1.0]
    assert (model.table + jnp.ones(3)).tolist() == [1.0, 1.5, 2.0]


def test_constants_follow_the_compute_dtype_where_asked():
    settings = SimpleNamespace(dtype="bfloat16")
    assert constant(jnp.arange(3) / 2, config=settings).dtype == jnp.bfloat16
    assert constant(jnp.arange(3) / 2).dtype == jnp.float32
    assert constant(jnp.arange(3), config=settings).dtype == jnp.int32


def test_abstract_models_allocate_nothing_and_know_their_constants():
    model = Small.abstract(SETTINGS)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(nnx.state(model)))
    assert model.table[...].tolist() == [0, 0.5, 1.0]
    real = nnx.state(Small.from_config(SETTINGS, rngs=rngs()))
    same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), nnx.state(model), real)
    assert all(jax.tree.leaves(same))


def test_parameters_need_matching_axes_and_keys():
    with pytest.raises(ValueError, match="1 axis names"):
        param(jnp.ones((2, 3)), ("embed",))
    with pytest.raises(ValueError, match="need `rngs=`"):
        param(normal((2,), 1.0))
    assert param(full((2,), 3.0))[...].tolist() == [3, 3]
    assert param(jnp.arange(3), config=SETTINGS)[...].dtype == jnp.int32
