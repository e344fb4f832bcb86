"""Operations with a gradient of their own: `torch.autograd.Function` on `jax.custom_vjp`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class FunctionContext:
    """What `forward` leaves for `backward`: saved tensors, and whatever attributes it sets.

    A pytree: arrays among the attributes are residuals of the gradient, everything else is fixed when it is traced.
    """

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ctx.{name} is read in backward, but forward has not set it")

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for `backward`, which finds them in `saved_tensors`."""
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_non_differentiable(self, *tensors: Array) -> None:
        """Accepted for the source's sake: `backward` says itself what has no gradient."""

    def set_materialize_grads(self, value: bool) -> None:
        """Accepted for the source's sake: gradients of unused outputs are zeros here."""


def _is_tree(value: Any) -> bool:
    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(_is_array(leaf) or leaf is None for leaf in leaves)


def _flatten(ctx: FunctionContext) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    held = vars(ctx)
    traced = tuple(sorted(name for name in held if _is_tree(held[name])))
    fixed = tuple((name, held[name]) for name in sorted(held) if name not in traced)
    return tuple(held[name] for name in traced), (traced, fixed)


def _unflatten(aux: tuple[Any, ...], children: tuple[Any, ...]) -> FunctionContext:
    ctx = FunctionContext()
    vars(ctx).update(aux[1])
    vars(ctx).update(zip(aux[0], children, strict=True))
    return ctx


jax.tree_util.register_pytree_node(FunctionContext, _flatten, _unflatten)


class Function:
    """Base class of an operation with static methods `forward(ctx, *args)` and `backward(ctx, *gradients)`.

    `forward` may leave out `ctx` where the class has `setup_context(ctx, inputs, output)`. `backward` returns one
    gradient, or None, for every argument of `forward`. Arguments that are no arrays are constants of the operation.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The operation's outputs; its gradient is the one that `backward` computes.

        Raises:
            ValueError: `backward` returns another number of gradients than `forward` has arguments.
        """
        places = [index for index, value in enumerate(args) if _is_array(value)]

        def run(*arrays: Array) -> tuple[Any, FunctionContext]:
            given = _placed(args, places, arrays)
            ctx = FunctionContext()
            ctx.needs_input_grad = tuple(_is_array(value) and _is_floating(value) for value in args)
            if not hasattr(cls, "setup_context"):
                return cls.forward(ctx, *given), ctx
            output = cls.forward(*given)
            cls.setup_context(ctx, tuple(given), output)
            return output, ctx

        @jax.custom_vjp
        def operation(*arrays: Array) -> Any:
            return run(*arrays)[0]

        def backward(residuals: tuple[FunctionContext, tuple[Array, ...]], gradients: Any) -> tuple[Any, ...]:
            ctx, arrays = residuals
            outputs = gradients if isinstance(gradients, tuple) else (gradients,)
            found = cls.backward(ctx, *outputs)
            found = found if isinstance(found, tuple) else (found,)
            if len(found) < len(args) or any(extra is not None for extra in found[len(args) :]):
                raise ValueError(f"{cls.__name__}.backward: {len(found)} gradients for {len(args)} arguments")
            return tuple(_cotangent(found[place], array) for place, array in zip(places, arrays, strict=True))

        def forward(*arrays: Array) -> tuple[Any, tuple[FunctionContext, tuple[Array, ...]]]:
            output, ctx = run(*arrays)
            return output, (ctx, arrays)

        operation.defvjp(forward, backward)
        return operation(*(args[place] for place in places))


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray)


def _is_floating(value: Array) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.inexact))


def _placed(args: tuple[Any, ...], places: list[int], arrays: tuple[Array, ...]) -> list[Any]:
    given = list(args)
    for place, array in zip(places, arrays, strict=True):
        given[place] = array
    return given


def _cotangent(gradient: Array | None, array: Array) -> Any:
    """A gradient in the shape and dtype of its argument; zeros for None, and what JAX wants where there is none."""
    if not _is_floating(array):
        return np.zeros(array.shape, jax.dtypes.float0)
    if gradient is None:
        return jnp.zeros_like(array)
    return jnp.broadcast_to(gradient, array.shape).astype(array.dtype)
