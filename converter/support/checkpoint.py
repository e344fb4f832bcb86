"""Training checkpoints: nested dictionaries of arrays and numbers in one msgpack file (flax.serialization)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx, serialization

from .parameters import named_arrays


def state_dict(model: nnx.Module) -> dict[str, Any]:
    """The model's arrays by name, in this model's own layouts."""
    return {name: np.array(variable.get_raw_value()) for name, variable in named_arrays(model)}


def load_state_dict(model: nnx.Module, state: Mapping[str, Any], strict: bool = True) -> None:
    """Give the arrays of `state_dict` back to a model.

    Raises:
      KeyError: with `strict`, names are missing or left over; all of them are listed.
      ValueError: a shape is not the model's.
    """
    own = dict(named_arrays(model))
    if strict and set(own) != set(state):
        raise KeyError(f"state: missing {sorted(set(own) - set(state))}, unexpected {sorted(set(state) - set(own))}")
    for name in own.keys() & state.keys():
        variable = own[name]
        if np.shape(state[name]) != variable.get_raw_value().shape:
            raise ValueError(f"{name}: shape {np.shape(state[name])}, expected {variable.get_raw_value().shape}")
        variable.set_value(jax.numpy.asarray(state[name], variable.get_raw_value().dtype))


def save(state: Any, path: Any) -> None:
    """Write a state; the file appears whole or not at all."""
    part = Path(f"{path}.part")
    part.write_bytes(serialization.msgpack_serialize(_plain(state)))
    part.replace(path)


def load(path: Any) -> Any:
    """Read what `save` wrote."""
    return serialization.msgpack_restore(Path(path).read_bytes())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return {str(number): _plain(item) for number, item in enumerate(value)}
    return np.asarray(value) if isinstance(value, jax.Array) else value
