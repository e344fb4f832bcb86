"""Module entries against torch's layers: constructor text -> support class, weights moved by the entry's layouts."""

import ast
import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter import measured, registry
from maxcode.converter.rule import NoRule, apply_module
from maxcode.converter.support import axis_layout
from maxcode.coverage import modules
from maxcode.coverage.running import execute_imports

CONFIG = types.SimpleNamespace(
    dtype="float64", weight_dtype="float64", matmul_precision="highest", initializer_range=0.02
)
LAYERS = [
    ("Linear(6, 4)", (2, 6)),
    ("Linear(6, 4, bias=False)", (2, 3, 6)),
    ("LayerNorm(6)", (2, 6)),
    ("LayerNorm((3, 6), eps=1e-3)", (2, 3, 6)),
    ("LayerNorm(6, bias=False)", (2, 6)),
    ("RMSNorm(6)", (2, 6)),
    ("GroupNorm(2, 4)", (2, 4, 5)),
    ("BatchNorm1d(4)", (3, 4, 5)),
    ("BatchNorm2d(4, eps=1e-3)", (3, 4, 5, 5)),
    ("InstanceNorm2d(4, affine=True)", (3, 4, 5, 5)),
    ("Conv1d(4, 6, 3, padding=2, dilation=2)", (2, 4, 9)),
    ("Conv2d(4, 6, (3, 2), stride=2, groups=2)", (2, 4, 9, 8)),
    ("Conv2d(4, 6, 3, padding='same', padding_mode='reflect')", (2, 4, 9, 8)),
    ("ConvTranspose2d(4, 6, 3, stride=2, output_padding=1)", (2, 4, 5, 5)),
    ("MaxPool2d(3, 2, 1)", (2, 4, 9, 9)),
    ("AvgPool2d(3, stride=2, padding=1, ceil_mode=True)", (2, 4, 8, 8)),
    ("AdaptiveAvgPool2d((1, 1))", (2, 4, 7, 7)),
    ("AdaptiveAvgPool2d(3)", (2, 4, 7, 7)),
    ("Dropout(0.5)", (2, 6)),
    ("Identity()", (2, 6)),
    ("ReLU(inplace=True)", (2, 6)),
    ("GELU()", (2, 6)),
    ("GELU('tanh')", (2, 6)),
    ("SiLU()", (2, 6)),
    ("Tanh()", (2, 6)),
    ("Sigmoid()", (2, 6)),
    ("LeakyReLU(0.2)", (2, 6)),
    ("Softplus(beta=2)", (2, 6)),
    ("Softmax(dim=-1)", (2, 6)),
    ("Hardtanh(-0.5, 0.5)", (2, 6)),
    ("Softmin(dim=1)", (2, 6)),
    ("Softmax2d()", (2, 4, 3, 3)),
    ("Tanhshrink()", (2, 6)),
    ("Hardshrink(0.3)", (2, 6)),
    ("PReLU()", (2, 6)),
    ("PReLU(4)", (2, 4, 3)),
    ("ChannelShuffle(2)", (2, 6, 3)),
    ("LocalResponseNorm(3, alpha=0.1, k=2.0)", (2, 6, 4, 4)),
    ("Unfold((2, 3), padding=1, stride=2)", (2, 3, 6, 7)),
    ("Fold((6, 7), (2, 3), padding=1, stride=2)", (2, 18, 16)),
    ("LPPool1d(2, 3, stride=2)", (2, 4, 8)),
    ("LPPool2d(2, (3, 2), ceil_mode=True)", (2, 4, 8, 8)),
    ("LPPool3d(2, 2)", (2, 4, 4, 4, 4)),
    ("LPPool2d(float('inf'), 3, stride=2)", (2, 4, 8, 8)),
    ("AlphaDropout(0.3)", (2, 6)),
    ("FeatureAlphaDropout(0.3)", (2, 6, 3)),
    ("Flatten()", (2, 3, 4)),
    ("Unflatten(1, (2, 3))", (2, 6)),
    ("Upsample(scale_factor=1.5)", (2, 3, 4)),
    ("Upsample((5, 7), mode='bilinear')", (2, 3, 4, 4)),
    ("UpsamplingNearest2d(scale_factor=2)", (2, 3, 4, 4)),
    ("UpsamplingBilinear2d(7)", (2, 3, 4, 4)),
    ("PixelShuffle(2)", (2, 8, 3, 3)),
    ("ReflectionPad2d(2)", (2, 3, 5, 5)),
    ("ZeroPad2d((1, 2, 0, 1))", (2, 3, 5, 5)),
]


def build(text: str):
    """The converted layer, with the keywords that its class takes."""
    call = ast.parse(text, mode="eval").body
    keywords = {k.arg: k.value for k in call.keywords}
    applied = apply_module(f"torch.nn.{call.func.id}", call.args, keywords)
    namespace = execute_imports(applied)
    made = applied.expr
    if not isinstance(made, ast.Call):
        return eval(ast.unparse(made), namespace)
    namespace |= {"config": CONFIG, "rngs": nnx.Rngs(0)}
    cls = eval(ast.unparse(made.func), namespace)
    accepted = set(inspect.signature(cls.__init__).parameters) & {"config", "rngs"}
    made.keywords += [ast.keyword(k, ast.Name(k, ast.Load())) for k in sorted(accepted)]
    return eval(ast.unparse(made), namespace)


def copy_weights(name: str, source: torch.nn.Module, layer) -> None:
    """Move every stored tensor by the entry's layout; each has to have a place."""
    weights = registry.weights_of(name)
    for leaf, tensor in source.state_dict().items():
        target, layout = weights[leaf]
        moved = axis_layout.parse_layout(layout).apply(tensor.numpy())
        vars(layer)[target].set_value(jnp.asarray(moved))


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(("text", "shape"), LAYERS, ids=[text for text, _ in LAYERS])
def test_layer_agrees_with_torch(text, shape):
    torch.manual_seed(0)
    source = eval(f"torch.nn.{text}", {"torch": torch}).double().eval()
    for tensor in (*source.parameters(), *source.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.1, 1.0)
    layer = build(text)
    copy_weights(f"torch.nn.{text.split('(')[0]}", source, layer)
    value = torch.randn(*shape, dtype=torch.float64)
    found = layer(jnp.asarray(value.numpy()))
    want = source(value.clone()).detach().numpy()
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-11)


def test_embedding_agrees_with_torch():
    source = torch.nn.Embedding(5, 3, padding_idx=1).double()
    layer = build("Embedding(5, 3, padding_idx=1)")
    copy_weights("torch.nn.Embedding", source, layer)
    ids = torch.tensor([[0, 4], [1, 2]])
    np.testing.assert_array_equal(layer(jnp.asarray(ids.numpy())), source(ids).detach().numpy())


@pytest.mark.parametrize(
    "text",
    ["CosineSimilarity()", "CosineSimilarity(dim=-1)", "PairwiseDistance()", "PairwiseDistance(1.0, keepdim=True)"],
)
def test_layer_of_two_inputs_agrees_with_torch(text):
    pair = [torch.randn(2, 3, 4, dtype=torch.float64) for _ in range(2)]
    want = eval(f"torch.nn.{text}", {"torch": torch})(*pair)
    np.testing.assert_allclose(build(text)(*(jnp.asarray(x.numpy()) for x in pair)), want, rtol=1e-12)


def test_parameters_by_key():
    layer = build("ParameterDict()")
    layer["scale"] = nnx.Param(jnp.ones(3))
    assert "scale" in layer
    assert layer["scale"].shape == (3,)


def test_parameterless_layers_compare_equal():
    """A layer stack tells equal layers by their static attributes."""
    assert build("LeakyReLU(0.2)") == build("LeakyReLU(0.2)") != build("LeakyReLU(0.1)")
    assert build("GELU()") is build("GELU()")


def test_sequential_runs_converted_layers():
    layer = build("Sequential()")
    layer.append(build("Tanh()"))
    layer.append(build("Flatten()"))
    assert layer(jnp.ones((2, 3, 4))).shape == (2, 12)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Softmax()", "dim is not given"),
        ("Softmin()", "dim is not given"),
        ("Embedding(5, 3, max_norm=1.0)", "max_norm"),
        ("EmbeddingBag(5, 3, scale_grad_by_freq=True)", "scale_grad_by_freq"),
        ("TransformerDecoderLayer(4, 2, activation=SiLU())", "activation is a layer"),
        ("Transformer(4, 2, activation=SiLU())", "activation is a layer"),
        ("LSTM(4, 2, unknown=1)", "unknown"),
    ],
)
def test_limits_are_gaps(text, reason):
    with pytest.raises(NoRule, match=reason):
        build(text)


def _agreeing() -> list[str]:
    kind = "module "
    return [
        k.removeprefix(kind) for k, r in measured.read()["rows"].items() if k.startswith(kind) and measured.agrees(r)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", _agreeing())
def test_measured_layers_still_agree(name):
    assert measured.agrees(modules.measure(name, most=6))


def test_batch_norm_without_momentum_averages_all_batches():
    """None is a value of its own, not an omitted argument: torch's default is 0.1."""
    layer = build("BatchNorm1d(3, momentum=None)")
    assert layer.momentum is None


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_unpooling_layer_agrees_with_torch(spatial):
    x = torch.randn((2, 3, 6, 4, 4)[: spatial + 2], dtype=torch.float64)
    pooled, places = getattr(torch.nn, f"MaxPool{spatial}d")(2, return_indices=True)(x)
    want = getattr(torch.nn, f"MaxUnpool{spatial}d")(2)(pooled, places)
    found = build(f"MaxUnpool{spatial}d(2)")(jnp.asarray(pooled.numpy()), jnp.asarray(places.numpy()))
    np.testing.assert_array_equal(found, want)
