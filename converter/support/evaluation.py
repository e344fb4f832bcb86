"""A model's call outside training, compiled once for each structure of its inputs."""

from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx


def eval_step(model: Any, *args: Any, **kwargs: Any) -> Any:
    """`model(*args, **kwargs)`, compiled; arrays among the arguments are traced, other values are compiled in.

    In training mode the model is called as it is, since its batch statistics change.
    """
    model = getattr(model, "module", model)  # of an average
    if model.training:
        return model(*args, **kwargs)
    leaves, structure = jax.tree.flatten((args, kwargs))
    is_array = [isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves]
    traced = [leaf for leaf, array in zip(leaves, is_array, strict=True) if array]
    static = tuple(None if array else leaf for leaf, array in zip(leaves, is_array, strict=True))
    graph, state = nnx.split(model)
    return _run(graph, structure, tuple(is_array), static, nnx.as_pure(state), traced)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run(graph: Any, structure: Any, is_array: Any, static: Any, state: Any, traced: list[Any]) -> Any:
    arrays = iter(traced)
    leaves = [next(arrays) if array else leaf for array, leaf in zip(is_array, static, strict=True)]
    args, kwargs = jax.tree.unflatten(structure, leaves)
    return nnx.merge(graph, state)(*args, **kwargs)
