"""What one layer of a cache stores: named arrays, alone or stacked with those of other layers."""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array

LENGTH, INDEXER_LENGTH = "length", "indexer_length"
REBUILD = "make the cache with init_cache of the model (and the batch and inputs) that uses it"


class Slot:
    """What one layer stores: named arrays, or slice `index` of arrays that are stacked over layers; and its static
    flags.
    """

    def __init__(self, layer_idx: int, arrays: dict[str, Any], index: Any, flags: set[str]):
        self.layer_idx, self.arrays, self.index, self.flags = layer_idx, arrays, index, flags

    def read(self, name: str) -> Array:
        """The array called `name` of this layer; raises KeyError with what the layer does store."""
        if name not in self.arrays:
            raise KeyError(f"cache layer {self.layer_idx} stores {sorted(self.arrays)}, not {name!r}; {REBUILD}")
        array = self.arrays[name]
        return array if self.index is None else lax.dynamic_index_in_dim(array, self.index, keepdims=False)

    def write(self, name: str, value: Array) -> None:
        """Replace the array called `name`; shapes must agree."""
        shape = self._shape(name)
        if value.shape != shape:
            raise ValueError(f"cache layer {self.layer_idx}: {name!r} has shape {shape}, got {value.shape}; {REBUILD}")
        self._write_at(name, value, [0] * value.ndim)

    def append(self, name: str, value: Array, axis: int, start: Array) -> None:
        """Write `value` at position `start` of `axis`; the other axes must agree with the buffer's."""
        shape = self._shape(name)
        if value.shape[:axis] + value.shape[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
            raise ValueError(
                f"cache layer {self.layer_idx}: {name!r} has shape {shape}, cannot take {value.shape}; {REBUILD}"
            )
        # Only lengths that are known now can be checked: a traced write past the end is clamped by XLA.
        first = 0 if isinstance(start, Tracer) else int(start)
        if first + value.shape[axis] > shape[axis]:
            raise ValueError(
                f"cache layer {self.layer_idx} holds {shape[axis]} positions; {first} are used and {value.shape[axis]} "
                "more were given: initialise the cache with a larger length"
            )
        indices: list[Any] = [0] * value.ndim
        indices[axis] = start
        self._write_at(name, value, indices)

    def advance(self, counter: str, steps: int) -> None:
        """Add `steps` to the position counter called `counter`."""
        self._write_at(counter, self.read(counter) + steps, [])

    def _shape(self, name: str) -> tuple[int, ...]:
        self.read(name)
        return self.arrays[name].shape[0 if self.index is None else 1 :]

    def _write_at(self, name: str, value: Array, indices: list[Any]) -> None:
        array = self.arrays[name]
        value = value.astype(array.dtype)
        if self.index is not None:
            value, indices = value[None], [self.index, *indices]
        indices = [jnp.asarray(i, jnp.int32) for i in indices]
        self.arrays[name] = lax.dynamic_update_slice(array, value, indices) if indices else value


class TransientSlot(Slot):
    """A layer of a cache that a model made for one call: nothing was there before, and nothing is kept."""

    def __init__(self, layer_idx: int | None):
        super().__init__(-1 if layer_idx is None else layer_idx, {}, None, set())
        self._held: dict[str, Array] = {}

    def read(self, name):
        return self._held.get(name, jnp.zeros((), jnp.int32))

    def write(self, name, value):
        self._held[name] = value

    def append(self, name, value, axis, start):
        self._held[name] = value

    def advance(self, counter, steps):
        pass


class RecordingSlot(Slot):
    """A layer of the abstract call of `init_cache`: notes shapes and dtypes, and hands back what it was given."""

    def read(self, name):
        return jnp.zeros((), jnp.int32) if name not in self.arrays else jnp.zeros(*self.arrays[name][:2])

    def write(self, name, value):
        self.arrays[name] = (value.shape, value.dtype, None)

    def append(self, name, value, axis, start):
        self.arrays[name] = (value.shape, value.dtype, axis)

    def advance(self, counter, steps):
        self.arrays[counter] = ((), jnp.dtype("int32"), None)
