"""Random numbers; keys come from the caller's `random.key_scope`."""

import jax
import jax.numpy as jnp

from maxcode.converter.rule import op
from maxcode.converter.support import random

float32 = jnp.float32


@op("torch.rand")
def rand(*size, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    return jax.random.uniform(random.next_key(), size, float32 if dtype is None else dtype)


@op("torch.randn")
def randn(*size, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    return jax.random.normal(random.next_key(), size, float32 if dtype is None else dtype)


@op("torch.rand_like")
def rand_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jax.random.uniform(random.next_key(), input.shape, input.dtype if dtype is None else dtype)


@op("torch.randn_like")
def randn_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jax.random.normal(random.next_key(), input.shape, input.dtype if dtype is None else dtype)


@op("torch.randint")
def randint_below(high, size, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False):
    return (
        jax.random.randint(random.next_key(), size, 0, high)
        if dtype is None
        else jax.random.randint(random.next_key(), size, 0, high).astype(dtype)
    )


@op("torch.randint")
def randint(low, high, size, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False):
    return (
        jax.random.randint(random.next_key(), size, low, high)
        if dtype is None
        else jax.random.randint(random.next_key(), size, low, high).astype(dtype)
    )


@op("torch.randperm")
def randperm(n, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jax.random.permutation(random.next_key(), n)


@op("torch.bernoulli", "torch.Tensor.bernoulli")
def bernoulli(input, *, generator=None):
    return jax.random.bernoulli(random.next_key(), input).astype(input.dtype)


@op("torch.bernoulli", "torch.Tensor.bernoulli")
def bernoulli_of(input, p, *, generator=None):
    return jax.random.bernoulli(random.next_key(), p, jnp.shape(input)).astype(input.dtype)


@op("torch.normal")
def normal(mean, std, size, *, generator=None, dtype=None, device=None):
    return mean + std * jax.random.normal(random.next_key(), size, float32 if dtype is None else dtype)


@op("torch.multinomial", "torch.Tensor.multinomial")
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Indices [..., num_samples] drawn by the weights in the last axis; without replacement by Gumbel top-k."""
    logits = jnp.log(input)
    if replacement:
        draws = jax.random.categorical(random.next_key(), logits, shape=(num_samples, *input.shape[:-1]))
        return jnp.moveaxis(draws, 0, -1).astype(int)
    noise = jax.random.gumbel(random.next_key(), logits.shape, logits.dtype)
    return jax.lax.top_k(logits + noise, num_samples)[1].astype(int)


@op("torch.Tensor.uniform")
def uniform(input, low=0.0, high=1.0):
    return jax.random.uniform(random.next_key(), input.shape, input.dtype, low, high)


@op("torch.Tensor.normal")
def normal_filled(input, mean=0.0, std=1.0):
    return mean + std * jax.random.normal(random.next_key(), input.shape, input.dtype)


@op("torch.nn.functional.gumbel_softmax")
def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """Softmax of (logits + Gumbel noise) / tau; `hard` gives the nearest one-hot vector, with the gradient of that."""
    noise = jax.random.gumbel(random.next_key(), logits.shape, logits.dtype)
    soft = jax.nn.softmax((logits + noise) / tau, axis=dim)
    if not hard:
        return soft
    best = jnp.argmax(soft, axis=dim, keepdims=True)
    place = jax.lax.broadcasted_iota(best.dtype, soft.shape, dim % soft.ndim)
    return (place == best).astype(soft.dtype) - jax.lax.stop_gradient(soft) + soft


@op("torch.randint_like")
def randint_like_below(input, high, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jax.random.randint(random.next_key(), input.shape, 0, high).astype(input.dtype if dtype is None else dtype)


@op("torch.randint_like")
def randint_like(input, low, high, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jax.random.randint(random.next_key(), input.shape, low, high).astype(input.dtype if dtype is None else dtype)
