"""Compare a support layer with the torch module that it stands for: values, dtypes, gradients."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from flax import nnx

from maxcode.converter.support.leaves import get_leaf, leaf_paths, set_leaf

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 1.6e-2}
SPATIAL = "dhw"
CONV = {"weight": ("kernel", lambda w: np.moveaxis(w, (0, 1), (-1, -2)))}
LAYOUTS = {
    "Linear": {"weight": ("kernel", np.transpose)},
    "Embedding": {"weight": ("embedding", None)},
    "Conv": CONV,
    "ConvTranspose": {"weight": ("kernel", lambda w: np.moveaxis(w, (0, 1), (-2, -1)))},
    "Norm": {"weight": ("scale", None)},
}


def config(dtype="float32", **fields):
    return SimpleNamespace(dtype=dtype, weight_dtype=dtype, matmul_precision="highest", **fields)


def array(tensor):
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy().copy()  # JAX would take over the memory, which torch changes in place


def _layout(module, name):
    kind = type(module).__name__.rstrip("123d")
    layout = LAYOUTS.get(kind) or LAYOUTS["Norm" if "Norm" in kind else kind]
    return layout.get(name, (name, None))


def copy_weights(layer, module):
    """Fill the layer with the module's parameters and buffers; every one must find a place."""
    filled = set()
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        leaf, change = _layout(module, name)
        value = array(tensor)
        set_leaf(layer, leaf, change(value) if change else value)
        filled.add(leaf)
    assert filled == set(leaf_paths(layer))


def close(got, expected, dtype, scale=1.0):
    expected = np.asarray(array(expected) if isinstance(expected, torch.Tensor) else expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    got, expected = np.asarray(got, np.float64), expected.astype(np.float64)
    limit = scale * TOLERANCE[dtype] * max(np.abs(expected).max(initial=0), 1e-3)
    np.testing.assert_allclose(got, expected, rtol=0, atol=limit)


def assert_same(make, module, *shapes, dtype="float64", inputs=None, gradients=True, training=False):
    """`make(config)` builds the layer; inputs are seeded normal of `shapes`, or given as numpy arrays."""
    torch.manual_seed(0)
    module = module.to(DTYPES[dtype]).train(training)
    tensors = [torch.randn(shape, dtype=torch.float64).to(DTYPES[dtype]) for shape in shapes]
    tensors = tensors if inputs is None else [torch.from_numpy(value) for value in inputs]
    for tensor in tensors:
        tensor.requires_grad_(tensor.is_floating_point() and gradients)
    with jax.enable_x64(dtype == "float64"):
        layer = make(config(dtype)).train(training)
        copy_weights(layer, module)
        arrays = [jnp.asarray(array(tensor)) for tensor in tensors]
        graph, params, rest = nnx.split(layer, nnx.Param, ...)

        expected = module(*tensors)
        cotangent = torch.randn(expected.shape, dtype=torch.float64).to(expected.dtype)
        got, buffers, by_params, by_inputs = _run(graph, params, rest, arrays, array(cotangent), gradients)
        close(got, expected, dtype)
        nnx.update(layer, buffers)
        for name, tensor in module.named_buffers():
            np.testing.assert_allclose(get_leaf(layer, name), array(tensor), rtol=TOLERANCE[dtype])
        if gradients:
            expected.backward(cotangent)
            for got, tensor in zip(by_inputs, [t for t in tensors if t.requires_grad], strict=True):
                close(got, tensor.grad, dtype, 4)
            _same_gradients(nnx.merge(graph, by_params, rest), module, dtype)
    return layer


def _run(graph, params, rest, arrays, cotangent, gradients):
    """Output, changed state and, if wanted, the gradients by parameters and by floating inputs, in one program."""
    floats = [i for i, a in enumerate(arrays) if jnp.issubdtype(a.dtype, jnp.floating)]

    def scalar(params, chosen, rest):
        whole = [chosen[floats.index(i)] if i in floats else a for i, a in enumerate(arrays)]
        merged = nnx.merge(graph, *jax.tree.map(lambda leaf: leaf, (params, rest)))
        y = merged(*whole)
        return (y * cotangent).sum(), (y, nnx.state(merged, nnx.Not(nnx.Param)))

    call = jax.grad(scalar, (0, 1), has_aux=True) if gradients else lambda *a: ((None, None), scalar(*a)[1])
    grads, (y, buffers) = jax.jit(call)(params, [arrays[i] for i in floats], rest)
    return y, buffers, *grads


def _same_gradients(grads, module, dtype):
    for name, parameter in module.named_parameters():
        leaf, change = _layout(module, name)
        grad = array(parameter.grad)
        close(get_leaf(grads, leaf), change(grad) if change else grad, dtype, 4)
