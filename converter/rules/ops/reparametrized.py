"""Functions that change how a layer's weight is computed, called where the layer is made."""

from maxcode.converter.arguments import literal
from maxcode.converter.rule import op
from maxcode.converter.support import reparametrized

_NAME = {"only the parameter `weight` is converted": lambda name: name is not None and literal(name) != "weight"}


@op("torch.nn.utils.weight_norm", "torch.nn.utils.weight_norm.weight_norm", limits=_NAME)
def weight_norm(module, name="weight", dim=0):
    return reparametrized.weight_norm(module, dim=dim)


@op("torch.nn.utils.parametrizations.weight_norm", limits=_NAME)
def parametrized_weight_norm(module, name="weight", dim=0):
    return reparametrized.parametrized_weight_norm(module, dim=dim)


@op("torch.nn.utils.spectral_norm", "torch.nn.utils.spectral_norm.spectral_norm", limits=_NAME)
def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    return reparametrized.spectral_norm(module, n_power_iterations=n_power_iterations, eps=eps, dim=dim)


@op("torch.nn.utils.parametrizations.spectral_norm", limits=_NAME)
def parametrized_spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    return reparametrized.parametrized_spectral_norm(module, n_power_iterations=n_power_iterations, eps=eps, dim=dim)
