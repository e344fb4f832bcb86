"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax.numpy as jnp
from flax import nnx

from . import ops
from .autograd import Function
from .layers import Linear
from .module import Leaf, Module, compute_dtype, normal, param
from .settings import at_config_settings


class ScaledTanh(Function):
    """tanh with a straight-through gradient where it saturates. Source: torch_model.py:6."""

    @staticmethod
    def forward(ctx, x, scale, dim=-1):
        y = jnp.tanh(x * scale)
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        grad = grad_output * jnp.clip(1 - y * y, min=0.1) * ctx.scale
        grad = grad - grad.mean(ctx.dim, keepdims=True)
        return grad, None, None


class RoundSTE(Function):
    """Source: torch_model.py:25."""

    @staticmethod
    def forward(x):
        return jnp.round(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        (_,) = inputs
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad):
        return grad


def ste(x):
    return RoundSTE.apply(x)


class Weighted(Function):
    """Source: torch_model.py:44."""

    @staticmethod
    def forward(ctx, x, weight, index):
        ctx.save_for_backward(x, weight, index)
        return x @ weight, x[index]

    @staticmethod
    def backward(ctx, grad_out, grad_picked):
        x, weight, index = ctx.saved_tensors
        grad_x = grad_w = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_out @ weight.T
            grad_x = ops.index_add(grad_x, 0, index, grad_picked)
        if ctx.needs_input_grad[1]:
            grad_w = 2 * x.T @ grad_out
        return grad_x, grad_w, None


class Net(Module):
    """Source: torch_model.py:62."""

    weight = Leaf()

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(dim=config.dim, config=config, rngs=rngs)

    def __init__(self, dim=6, *, config, rngs: nnx.Rngs):
        self.config = config
        self.dtype = compute_dtype(config)
        self.inp = Linear(5, dim, axes=(None, "embed"), config=config, rngs=rngs)
        self.weight = param(normal((dim, dim), 0.02), axes=("embed", None), config=config, rngs=rngs)
        self.act = ScaledTanh.apply

    @at_config_settings
    def __call__(self, x):
        h = self.act(self.inp(x), 1.5)
        h = h + ste(3 * h)
        out, picked = Weighted.apply(h, self.weight, ops.tensor([0, 2]))
        return out.sum(-1) + picked.sum()
