"""Weight and spectral normalisation of layers against torch: names, values, gradients, estimates in training."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch.nn.utils import parametrizations

from maxcode.converter.support import conv, layers, reparametrized
from maxcode.converter.support.leaves import get_leaf, leaf_paths
from maxcode.converter.support.module import abstract_parameters
from tests.converter.support.torch_pairs import config
from tests.converter.support.torch_trees import assert_same_tree, fill

FORMS = {
    "weight_norm": torch.nn.utils.weight_norm,
    "parametrized_weight_norm": parametrizations.weight_norm,
    "spectral_norm": torch.nn.utils.spectral_norm,
    "parametrized_spectral_norm": parametrizations.spectral_norm,
}
LAYERS = [
    ("Linear", (4, 3), (2, 4)),
    ("Conv1d", (4, 6, 3, 1, 1, 1, 2), (2, 4, 5)),
    ("ConvTranspose2d", (4, 3, 2), (2, 4, 3, 3)),
]


def both(form, name, arguments, **options):
    torch.manual_seed(0)
    cls = getattr(layers if name == "Linear" else conv, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the older forms deprecated
        module = FORMS[form](getattr(torch.nn, name)(*arguments).double(), **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    wrap = getattr(reparametrized, form)
    return lambda c: wrap(cls(*arguments, config=c, rngs=nnx.Rngs(0)), **options), module


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "arguments", "shape"), LAYERS, ids=[name for name, *_ in LAYERS])
def test_values_and_gradients(form, name, arguments, shape):
    assert_same_tree(*both(form, name, arguments), torch.randn(shape))


@pytest.mark.parametrize("dim", [None, 1, 2])
def test_axis_of_weight_norm(dim):
    pair = both("parametrized_weight_norm", "Conv1d", (4, 6, 3), dim=dim)
    assert_same_tree(*pair, torch.randn(2, 4, 5))


@pytest.mark.parametrize("form", ["spectral_norm", "parametrized_spectral_norm"])
def test_training_improves_the_estimates(form):
    make, module = both(form, "Conv1d", (4, 6, 3), n_power_iterations=2)
    with jax.enable_x64(True):
        layer = make(config("float64")).train()
        fill(layer, module)
        module.train()
        for seed in range(3):
            x = torch.randn(2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
            np.testing.assert_allclose(layer(jnp.asarray(x.numpy())), module(x).detach(), atol=1e-12)
        for name, buffer in module.named_buffers():
            np.testing.assert_allclose(get_leaf(layer, name), buffer, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_shapes_without_weights_and_a_round_trip(form):
    make, module = both(form, "Linear", (4, 3))
    with abstract_parameters():
        found = {name: leaf.shape for name, leaf in leaf_paths(make(None)).items()}
    state = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert found == state
    layer = make(None)
    again = nnx.merge(*nnx.split(layer))
    np.testing.assert_array_equal(again(jnp.ones(4)), layer(jnp.ones(4)))
    assert nnx.graphdef(layer) == nnx.graphdef(make(None))


def test_other_layers_are_refused():
    with pytest.raises(TypeError, match=r"Embedding\.weight"):
        reparametrized.weight_norm(layers.Embedding(3, 2, rngs=nnx.Rngs(0)))
    with pytest.raises(TypeError, match=r"Linear\.bias"):
        reparametrized.spectral_norm(layers.Linear(3, 2, rngs=nnx.Rngs(0)), "bias")
    with pytest.raises(TypeError, match="plain"):
        reparametrized.weight_norm(reparametrized.weight_norm(layers.Linear(3, 2, rngs=nnx.Rngs(0))))
