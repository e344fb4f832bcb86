"""Transformations of functions: `torch.vmap` and those of `torch.func`."""

import jax

from maxcode.converter.rule import op


@op("torch.vmap", "torch.func.vmap")
def vmap(func, in_dims=0, out_dims=0):
    return jax.vmap(func, in_axes=in_dims, out_axes=out_dims)


@op("torch.func.grad")
def grad(func, argnums=0, has_aux=False):
    return jax.grad(func, argnums=argnums, has_aux=has_aux)


@op("torch.func.grad_and_value")
def grad_and_value(func, argnums=0, has_aux=False):
    def run(*args, **kwargs):
        value, gradient = jax.value_and_grad(func, argnums=argnums, has_aux=has_aux)(*args, **kwargs)
        return gradient, value

    return run


@op("torch.func.jacrev")
def jacrev(func, argnums=0, *, has_aux=False):
    return jax.jacrev(func, argnums=argnums, has_aux=has_aux)


@op("torch.func.jacfwd")
def jacfwd(func, argnums=0, has_aux=False):
    return jax.jacfwd(func, argnums=argnums, has_aux=has_aux)


@op("torch.func.hessian")
def hessian(func, argnums=0):
    return jax.hessian(func, argnums=argnums)


@op("torch.func.jvp")
def jvp(func, primals, tangents):
    return jax.jvp(func, primals, tangents)


@op("torch.func.vjp")
def vjp(func, *primals):
    return jax.vjp(func, *primals)
