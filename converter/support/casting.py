"""Parts of a model that compute and are stored in a dtype of their own."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from .module import iter_modules


def cast_module(module: Any, dtype: Any) -> Any:
    """Compute with a module and all below it in `dtype`, and store their floating-point arrays so; returns the module.

    It is what torch's `module.to(dtype)` does while a model is built: later casts of the whole model do not undo it.
    """
    for part in iter_modules(module):
        if "dtype" in vars(part):
            part.dtype = jnp.dtype(dtype)
        for variable in vars(part).values():
            if isinstance(variable, nnx.Variable):
                _cast(variable, dtype)
    return module


def _cast(variable: nnx.Variable, dtype: Any) -> None:
    value = variable.get_value()
    if value is None or not jnp.issubdtype(value.dtype, jnp.floating):
        return
    is_abstract = isinstance(value, jax.ShapeDtypeStruct)
    variable.set_value(jax.ShapeDtypeStruct(value.shape, dtype) if is_abstract else value.astype(dtype))
