"""Compare a layer of any inputs and outputs with its torch module in float64: values and all gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from maxcode.converter import registry
from maxcode.converter.support import axis_layout
from maxcode.converter.support.leaves import get_leaf, leaf_paths, set_leaf
from tests.converter.support.torch_pairs import config

Tree = Any


def places(module: torch.nn.Module) -> dict[str, tuple[str, str]]:
    """Source tensor -> (leaf of the converted module, layout), by the module rules, as a checkpoint maps them."""
    found = {}
    for prefix, owner in module.named_modules():
        rules = next(
            (registry.weights_of(c) for c in map(_qualified, type(owner).__mro__) if registry.has_module(c)), {}
        )
        for name in (*owner._parameters, *owner._buffers):
            leaf, layout = rules.get(name, (name, ""))
            if getattr(owner, name) is not None:
                found[f"{prefix}.{name}".lstrip(".")] = (f"{prefix}.{leaf}".lstrip("."), layout)
    return found


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def move(tensor: torch.Tensor, layout: str) -> np.ndarray:
    """A tensor's values in the converted module's layout."""
    return axis_layout.parse_layout(layout).apply(tensor.detach().numpy().copy())


def fill(layer: nnx.Module, module: torch.nn.Module) -> None:
    """Give the layer the module's values; every leaf has to be filled."""
    where = places(module)
    state = dict((*module.named_parameters(), *module.named_buffers()))
    for name, (leaf, layout) in where.items():
        if name in state:
            set_leaf(layer, leaf, move(state[name], layout))
    assert {where[name][0] for name in state} == set(leaf_paths(layer))


def assert_same_tree(make, module: torch.nn.Module, *args: Tree, atol: float = 1e-12, training=False, **kwargs: Tree):
    """`make(config)` builds the layer, which must give torch's outputs and gradients for the same call.

    Arguments are trees of torch tensors (tuples, None, Python values); floating ones are differentiated.
    """
    module = module.double().train(training)
    module.zero_grad()  # a test may call it again
    given = _map(lambda t: t.detach().double().clone().requires_grad_() if t.is_floating_point() else t, (args, kwargs))
    with jax.enable_x64(True):
        layer = make(config("float64")).train(training)
        fill(layer, module)
        expected = module(*given[0], **given[1])
        outputs = _arrays(expected)
        cotangents = [torch.randn(o.shape, dtype=torch.float64) for o in outputs]
        graph, params, rest = nnx.split(layer, nnx.Param, ...)
        floats = [t for t in _arrays(given) if t.is_floating_point()]

        def loss(params: Any, values: list[Any]) -> Any:
            left = iter(values)
            call = _map(lambda t: next(left) if t.is_floating_point() else jnp.asarray(t.numpy()), given)
            got = _arrays(nnx.merge(graph, params, rest)(*call[0], **call[1]))
            return sum((g * c.numpy()).sum() for g, c in zip(got, cotangents, strict=True)), got

        values = [jnp.asarray(t.detach().numpy().copy()) for t in floats]
        grads, got = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, values)
        for ours, theirs in zip(got, outputs, strict=True):
            _close(ours, theirs, atol)
        sum((o * c).sum() for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad).backward()
        for ours, theirs in zip(grads[1], floats, strict=True):
            _close(ours, torch.zeros_like(theirs) if theirs.grad is None else theirs.grad, 10 * atol)
        where, by_params = places(module), nnx.merge(graph, grads[0], rest)
        for name, parameter in module.named_parameters():
            leaf, layout = where[name]
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            _close(get_leaf(by_params, leaf), torch.from_numpy(move(grad, layout)), 10 * atol, name)
    return layer


def _close(ours: Any, theirs: torch.Tensor, atol: float, name: str = "") -> None:
    theirs = theirs.detach().numpy()
    assert ours.dtype == theirs.dtype
    scale = max(1.0, float(np.abs(np.nan_to_num(theirs, posinf=0, neginf=0)).max(initial=0)))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol * scale, err_msg=name)


def _map(fn, tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: _map(fn, value) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(_map(fn, value) for value in tree)
    return fn(tree) if torch.is_tensor(tree) else tree


def _arrays(tree: Tree) -> list[Any]:
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, tuple | list):
        return [leaf for value in tree for leaf in _arrays(value)]
    return [tree] if torch.is_tensor(tree) or isinstance(tree, jax.Array) else []
