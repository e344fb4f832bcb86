"""State of training as one pytree that a jitted step takes and gives back, its buffers donated.

graph, state = start(model, optimizer)
state, loss = train_step(graph, optimizer, state, optimizer.hyperparameters(), x, y)
finish(model, optimizer, state)
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, struct
from jaxtyping import Array

from .leaves import get_node
from .optim import Hyperparameters, Optimizer
from .parameters import is_trained


class TrainState(struct.PyTreeNode):
    """Parameters that are trained, the rest of the model's state, the optimizer's moments, and what steps need.

    `gradients` are those summed since they were last set to zero, None where every step makes its own. `places` says
    which arrays belong to which parameter group.
    """

    params: nnx.State
    rest: nnx.State
    moments: Any
    gradients: nnx.State | None
    key: Array
    step: Array
    places: Any = struct.field(pytree_node=False)

    def keyed(self) -> Array:
        """The key of this step's random numbers."""
        return jax.random.fold_in(self.key, self.step)

    def accumulated(self, gradients: nnx.State) -> "TrainState":
        """The state with `gradients` added to those it holds."""
        return self.replace(gradients=jax.tree.map(jnp.add, self.gradients, gradients))

    def zeroed(self) -> "TrainState":
        """The state with gradients of zero."""
        return self.replace(gradients=jax.tree.map(jnp.zeros_like, self.gradients))

    def updated(
        self, optimizer: Optimizer, gradients: nnx.State, hyper: Hyperparameters, if_finite: bool = False
    ) -> "TrainState":
        """The state after the optimizer's step; with `if_finite` only where all gradients are finite."""
        params, moments = optimizer.apply(gradients, self.moments, self.params, self.places, hyper)
        if if_finite:  # what a gradient scaler does
            finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]).all()
            before = (self.params, self.moments)
            params, moments = jax.tree.map(lambda new, old: jnp.where(finite, new, old), (params, moments), before)
        return self.replace(params=params, moments=moments)


def start(model: nnx.Module, optimizer: Optimizer, *, seed: int = 0, accumulates: bool = False) -> Any:
    """The model's graph and the state of training; `finish` puts it back, until then the model must not be used.

    Args:
      seed: of the dropout keys.
      accumulates: whether steps add gradients up.

    Raises:
      ValueError: some layers of a stacked parameter are frozen and others are not.
    """
    graph, trained, rest = nnx.split(model, is_trained, ...)
    params, rest = nnx.as_pure(trained), nnx.as_pure(rest)
    variables = {id(get_node(model, path)): number for number, path in enumerate(_paths(params))}
    places = optimizer.places(variables)
    if optimizer.state is None:
        moments, gradients = optimizer.init(params, places, optimizer.hyperparameters()), None
        key, step = jax.random.key(seed), jnp.zeros((), jnp.int32)
    else:
        moments, gradients, key, step = optimizer.state
    if accumulates and gradients is None:
        gradients = jax.tree.map(jnp.zeros_like, params)
    return graph, TrainState(params, rest, moments, gradients, key, step, places)


def _paths(tree: Any) -> list[tuple[Any, ...]]:
    """Attribute paths of a state's arrays, in the order of its leaves."""
    return [tuple(entry.key for entry in path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def finish(model: nnx.Module, optimizer: Optimizer, state: TrainState) -> None:
    """Give the trained parameters and batch statistics back to the model, and the moments to the optimizer."""
    nnx.update(model, state.params, state.rest)
    optimizer.state = (state.moments, state.gradients, state.key, state.step)


def rest_of(model: nnx.Module) -> nnx.State:
    """All of a model's state that is not trained: what `nnx.merge` takes beside the parameters."""
    return nnx.as_pure(nnx.split(model, is_trained, ...)[2])
