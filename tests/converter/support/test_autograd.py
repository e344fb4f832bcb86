"""Operations with a gradient of their own beside `torch.autograd.Function`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support.autograd import Function


class Clipped(Function):
    """Identity whose gradient is clipped to `bound`; `mask` marks what passes nothing back."""

    @staticmethod
    def forward(ctx, x, mask, bound):
        ctx.save_for_backward(mask)
        ctx.bound, ctx.note = bound, "fixed"
        return x * 1.0, mask.sum()

    @staticmethod
    def backward(ctx, gradient, _):
        (mask,) = ctx.saved_tensors
        assert ctx.note == "fixed"
        assert ctx.needs_input_grad == (True, False, False)
        return jnp.clip(gradient, -ctx.bound, ctx.bound) * mask, None, None


class TorchClipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask, bound):
        ctx.save_for_backward(mask)
        ctx.bound = bound
        return x * 1.0, mask.sum()

    @staticmethod
    def backward(ctx, gradient, _):
        (mask,) = ctx.saved_tensors
        return gradient.clamp(-ctx.bound, ctx.bound) * mask, None, None


@pytest.mark.parametrize("compiled", [False, True])
def test_the_gradient_is_the_one_of_backward(compiled):
    x, mask = np.array([0.5, -2.0, 3.0], np.float32), np.array([1, 0, 1])
    given = torch.tensor(x, requires_grad=True)
    out, _ = TorchClipped.apply(given, torch.tensor(mask), 1.5)
    (out**2).sum().backward()

    def loss(x):
        return (Clipped.apply(x, jnp.asarray(mask), 1.5)[0] ** 2).sum()

    gradient = jax.grad(loss)
    np.testing.assert_allclose((jax.jit(gradient) if compiled else gradient)(x), given.grad)


def test_constants_differ_between_calls_of_one_trace():
    gradient = jax.jit(jax.grad(lambda x: sum(Clipped.apply(3 * x, jnp.ones(2, int), b)[0].sum() for b in (0.25, 0.5))))
    np.testing.assert_allclose(gradient(jnp.ones(2)), [2.25, 2.25])


class Short(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[1]


def test_a_missing_gradient_is_an_error():
    assert Short.apply(jnp.array(2.0), jnp.array(3.0)) == 6
    with pytest.raises(ValueError, match=r"Short.backward: 1 gradients for 2 arguments"):
        jax.grad(lambda x: Short.apply(x, 3 * x))(2.0)


def test_what_forward_did_not_set_is_an_error():
    class Forgetful(Function):
        forward = staticmethod(lambda ctx, x: x)
        backward = staticmethod(lambda ctx, gradient: gradient * ctx.scale)

    with pytest.raises(AttributeError, match=r"ctx\.scale is read in backward"):
        jax.grad(Forgetful.apply)(1.0)
