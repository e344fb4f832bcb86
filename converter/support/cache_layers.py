"""Caches of fixed size: keys and values, convolution and recurrent states, one entry per layer.

A cache is a small Python object over arrays. `update` and its relatives rebind the arrays on the object itself, so the
call sites of a
model stay what they are in the source; at `jit`, `scan` and `while_loop` boundaries the cache is a pytree like any
other.

Method names and their meaning are those of transformers' `Cache`. Two things differ, because shapes must not change
while decoding:
keys and values live in buffers `[batch, heads, length, dim]` that are returned whole (masks hide what is not written
yet), and what the
source decides by "is there a state yet?" is decided by static flags in the tree structure. Hence a fresh cache of a
model with
convolution states, or with cross attention, has another tree structure than a used one: loops start from a cache that
has seen a prompt.

Layers that are scanned together are stored stacked, `[layers, ...]`, and are written in place through `open`, `bound`
and `close`.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .cache_slots import INDEXER_LENGTH, LENGTH, REBUILD, RecordingSlot, Slot, TransientSlot


@jax.tree_util.register_pytree_node_class
class Cache:
    """Keys, values and states of a model's layers; made by `init_cache`. See the module for what is static and what is
    traced.
    """

    is_compileable = True

    is_updated: Any  # of `EncoderDecoderCache`, which code that is given either asks for

    def __init__(
        self,
        groups: list[tuple[tuple[int, ...], bool, dict[str, Any]]] | None = None,
        *,
        recording: bool = False,
        config: Any = None,
    ):
        """`groups` holds (layer indices, stacked?, arrays): one layer's arrays, or those of several layers stacked on
        axis 0. Without them, as in a model's own `Cache(config=...)`, nothing is kept beyond the call that makes it.
        """
        self._groups, self.recording, self.transient = groups or [], recording, groups is None
        self._where = {layer: (g, i) for g, (layers, _, _) in enumerate(self._groups) for i, layer in enumerate(layers)}
        self._flags: dict[int, set[str]] = {layer: set() for layer in self._where}
        self._scanned: tuple[tuple[int, ...], ...] = ()
        self._closed: dict[int, set[str]] = {}
        self._opened: Slot | None = None
        self.notes: dict[str, Array] = {}  # what the model remembers between calls, see `memory`
        self.began_with_notes = False  # whether there were any when the current call began

    # --- attention layers

    def update(
        self,
        key_states: Float[Array, "b k t d"],
        value_states: Float[Array, "b v t e"],
        layer_idx: int | None,
        *args,
        **kwargs,
    ) -> tuple[Float[Array, "b k s d"], Float[Array, "b v s e"]]:
        """Write keys and values behind those the layer already holds; returns the layer's whole buffers.

        Raises ValueError where heads, batch or dims are not the buffers', or (outside jit) the buffers are full.
        """
        slot = self._slot(layer_idx)
        start, axis = slot.read(LENGTH), key_states.ndim - 2
        slot.append("keys", key_states, axis, start)
        slot.append("values", value_states, axis, start)
        slot.advance(LENGTH, key_states.shape[axis])
        return slot.read("keys").astype(key_states.dtype), slot.read("values").astype(value_states.dtype)

    def update_indexer(self, indexer_key_states: Float[Array, "b t d"], layer_idx: int | None) -> Float[Array, "b s d"]:
        """Write the keys of a sparse-attention indexer; returns the whole buffer."""
        slot = self._slot(layer_idx)
        slot.append("indexer_keys", indexer_key_states, 1, slot.read(INDEXER_LENGTH))
        slot.advance(INDEXER_LENGTH, indexer_key_states.shape[1])
        return slot.read("indexer_keys").astype(indexer_key_states.dtype)

    def get_seq_length(self, layer_idx: int | None = 0) -> Int[Array, ""]:
        """How many positions layer `layer_idx` holds (by default the first layer with keys), before this call's own are
        written.
        """
        return self._attention_slot(layer_idx).read(LENGTH)

    get_query_offset = get_seq_length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """How many positions the key buffers hold, -1 where there are none."""
        if self.recording:
            return -1
        names = [layer for layer in self._where if "keys" in self._slot(layer).arrays]
        if layer_idx is not None:
            names = [layer for layer in names if layer == layer_idx]
        return max((self._slot(layer).read("keys").shape[-2] for layer in names), default=-1)

    def get_mask_sizes(self, query_length: int, layer_idx: int | None = 0) -> tuple[int, int]:
        """(length, offset) of the keys that `update` returns: the buffers' length and 0."""
        if self.recording or self.transient:
            return query_length, 0
        return self._attention_slot(layer_idx).read("keys").shape[-2], 0

    # --- layers with convolution and recurrent states

    def get_conv_state(self, layer_idx: int | None, state_idx: int = 0) -> Array | None:
        """The last `conv_kernel_size` columns [batch, channels, kernel], or None in a layer that has seen nothing."""
        return self._state("conv", layer_idx, state_idx)

    def get_recurrent_state(self, layer_idx: int | None, state_idx: int = 0) -> Array | None:
        """The recurrent state, or None in a layer that has seen nothing."""
        return self._state("recurrent", layer_idx, state_idx)

    def update_conv_state(
        self,
        conv_states: Array,
        layer_idx: int | None,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **kwargs,
    ) -> Array:
        """Keep the last columns of (held state, `conv_states`) [batch, channels, t] and return all of them.

        Without a held state the new columns are padded with zeros on the left up to the kernel size, as the source
        does.
        """
        slot, name = self._slot(layer_idx), f"conv.{state_idx}"
        if conv_kernel_size is None:
            conv_kernel_size = conv_states.shape[-1] if self.recording or self.transient else slot.read(name).shape[-1]
        if f"previous.{state_idx}" in slot.flags:
            full = jnp.concatenate([slot.read(name).astype(conv_states.dtype), conv_states], axis=-1)
        else:
            missing = max(conv_kernel_size - conv_states.shape[-1], 0)
            full = jnp.pad(conv_states, [(0, 0)] * (conv_states.ndim - 1) + [(missing, 0)])
        self.set_conv_state(full[..., full.shape[-1] - conv_kernel_size :], layer_idx, state_idx)
        return full

    def set_conv_state(self, conv_states: Array, layer_idx: int | None, state_idx: int = 0) -> None:
        """Replace the convolution state (the functional form of writing into what `get_conv_state` returned)."""
        slot = self._slot(layer_idx)
        slot.write(f"conv.{state_idx}", conv_states)
        slot.flags.add(f"previous.{state_idx}")

    def update_recurrent_state(
        self, recurrent_states: Array, layer_idx: int | None, state_idx: int = 0, **kwargs
    ) -> Array:
        """Replace the recurrent state; returns it."""
        slot = self._slot(layer_idx)
        slot.write(f"recurrent.{state_idx}", recurrent_states)
        slot.flags.add(f"previous.{state_idx}")
        return recurrent_states

    def set_recurrent_state(self, recurrent_states: Array, layer_idx: int | None, state_idx: int = 0) -> None:
        """Replace the recurrent state (the functional form of writing into what `get_recurrent_state` returned)."""
        self.update_recurrent_state(recurrent_states, layer_idx, state_idx)

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        """Whether the layer (by default the last one with states) has seen anything: static."""
        if layer_idx is None and self._opened is None:
            layer_idx = max((i for i in self._where if self._is_stateful(self._slot(i))), default=0)
        slot = self._slot(layer_idx)
        if state_idx is not None:
            return f"previous.{state_idx}" in slot.flags
        states = {name.partition(".")[2] for name in slot.arrays if "." in name}
        return bool(states) and all(f"previous.{i}" in slot.flags for i in states)

    def is_recording_past(self, layer_idx: int | None) -> bool:
        """False: states are never kept for rolling back."""
        return False

    # --- the cache as a whole

    def __len__(self) -> int:
        return max(self._where, default=-1) + 1

    @property
    def layers(self) -> "_Layers":
        """Layers by index, each with `.keys`, `.values` and `.get_seq_length()`."""
        return _Layers(self)

    @property
    def is_sliding(self) -> list[bool]:
        """False everywhere: layers with a window keep full-length buffers, their masks make the window."""
        return [False] * len(self)

    @property
    def is_linear(self) -> list[bool]:
        """Which layers hold states but no keys."""
        held = [self._arrays(layer) for layer in range(len(self))]
        return ["keys" not in names and any("." in name for name in names) for names in held]

    @property
    def is_dummy(self) -> list[bool]:
        """Which layers hold nothing."""
        return [not self._arrays(layer) for layer in range(len(self))]

    # --- for layer stacks: docs of the protocol stand in docs/interfaces.md, section 5.2

    @contextlib.contextmanager
    def recorded(self, layers: tuple[int, ...]) -> Iterator[None]:
        """While recording: what is stored inside the block holds for each of `layers`, to be stored stacked."""
        outer, self._opened = self._opened, self._slot(layers[0], own=True)
        try:
            yield
        finally:
            self._opened = outer
        if self.transient:
            return
        group, _ = self._where[layers[0]]
        self._groups[group] = (tuple(layers), True, self._groups[group][2])
        self._where |= {layer: (group, i) for i, layer in enumerate(layers)}

    def open(self, groups: tuple[tuple[int, ...], ...]) -> Any:
        """The arrays of each tuple of layers, stacked on axis 0: free where they are stored so, else gathered."""
        self._scanned, self._closed = groups, {}
        return [dict(self._stacked(layers)) for layers in groups]

    @contextlib.contextmanager
    def bound(self, state: Any, position: int, index: Any) -> Iterator["Bound"]:
        """Within the block every `layer_idx` means layer `index` (may be traced) of group `position` of what `open`
        returned.
        """
        first = self._scanned[position][0]
        slot = Slot(first, dict(state[position]), index, set(self._flags.get(first, ())))
        slot = TransientSlot(first) if self.transient else slot
        outer, self._opened = self._opened, slot
        bound = Bound(state)
        try:
            yield bound
        finally:
            self._opened = outer
        bound.state = [*state[:position], slot.arrays, *state[position + 1 :]]
        self._closed[position] = set() if self.transient else slot.flags

    def close(self, groups: tuple[tuple[int, ...], ...], state: Any) -> None:
        """Take back the arrays of `open`, and the static flags of the layers bound in between."""
        for position, (layers, arrays) in enumerate(zip(groups, state, strict=True)):
            group = self._group(layers)
            if group is not None:
                group.update(arrays)
            for i, layer in enumerate(layers):
                if group is None and arrays:
                    slot = self._slot(layer, own=True)
                    for name, array in arrays.items():
                        slot.write(name, array[i])
                self._flags.setdefault(layer, set()).update(self._closed.get(position, ()))

    def _stacked(self, layers: tuple[int, ...]) -> dict[str, Array]:
        group = self._group(layers)
        if group is not None:
            return group
        slots = [self._slot(layer, own=True) for layer in layers if layer in self._where]
        return {name: jnp.stack([slot.read(name) for slot in slots]) for name in (slots[0].arrays if slots else ())}

    def _group(self, layers: tuple[int, ...]) -> dict[str, Array] | None:
        """The arrays stored stacked for exactly these layers."""
        where = self._where.get(layers[0])
        stored, stacked, arrays = self._groups[where[0]] if where else ((), False, {})
        return arrays if stacked and stored == tuple(layers) else None

    def _arrays(self, layer_idx: int | None) -> dict[str, Any]:
        return self._groups[self._where[layer_idx][0]][2] if layer_idx in self._where else {}

    def _slot(self, layer_idx: int | None, *, own: bool = False) -> Slot:
        """The opened layer, else this cache's own layer `layer_idx`."""
        if self._opened is not None and not own:
            return self._opened
        if self.transient:
            return TransientSlot(layer_idx)
        if layer_idx is None or layer_idx not in self._where:
            if layer_idx is None or not self.recording:
                raise KeyError(f"the cache has no layer {layer_idx}, it has {sorted(self._where)}; {REBUILD}")
            self._where[layer_idx] = (len(self._groups), 0)
            self._flags[layer_idx] = set()
            self._groups.append(((layer_idx,), False, {}))
        group, i = self._where[layer_idx]
        _, stacked, arrays = self._groups[group]
        kind = RecordingSlot if self.recording else Slot
        return kind(
            layer_idx, arrays, i if stacked and not self.recording else None, self._flags.setdefault(layer_idx, set())
        )

    def _attention_slot(self, layer_idx: int | None) -> Slot:
        if self._opened is not None or self.recording or self.transient or LENGTH in self._arrays(layer_idx):
            return self._slot(layer_idx)
        attention = [layer for layer in sorted(self._where) if LENGTH in self._arrays(layer)]
        if layer_idx != 0 or not attention:
            raise ValueError(
                f"cache layer {layer_idx} holds no keys, so it has no sequence length; layers {attention} do"
            )
        return self._slot(attention[0])

    def _state(self, kind: str, layer_idx: int | None, state_idx: int) -> Array | None:
        slot = self._slot(layer_idx)
        return slot.read(f"{kind}.{state_idx}") if f"previous.{state_idx}" in slot.flags else None

    @staticmethod
    def _is_stateful(slot: Slot) -> bool:
        return any("." in name for name in slot.arrays)

    # --- pytree

    def tree_flatten(self) -> Any:
        """Arrays of all groups and notes; the rest is structure."""
        structure = tuple((layers, stacked) for layers, stacked, _ in self._groups)
        flags = tuple((layer, tuple(sorted(names))) for layer, names in sorted(self._flags.items()) if names)
        return [self.notes, *(arrays for _, _, arrays in self._groups)], (structure, flags)

    @classmethod
    def tree_unflatten(cls, aux, children):
        """Inverse of `tree_flatten`."""
        structure, flags = aux
        notes, *children = children
        cache = cls([(*layout, arrays) for layout, arrays in zip(structure, children, strict=True)])
        for layer, names in flags:
            cache._flags.setdefault(layer, set()).update(names)
        cache.notes, cache.began_with_notes = notes, bool(notes)
        return cache


class Bound:
    """A layer bound inside a scan: `state` is the scan's carry, after the block with what the layer wrote."""

    def __init__(self, state: Any):
        self.state = state


class _Layers:
    """`cache.layers`: index or iterate to reach single layers."""

    def __init__(self, cache: Cache):
        self._cache = cache

    def __len__(self) -> int:
        return len(self._cache)

    def __getitem__(self, layer_idx: int | None) -> "_LayerView":
        return _LayerView(self._cache, layer_idx)

    def __iter__(self) -> Iterator["_LayerView"]:
        return (self[i] for i in range(len(self)))


class _LayerView:
    """One layer of a cache."""

    is_sliding = False

    def __init__(self, cache: Cache, layer_idx: int | None):
        self._cache, self._layer_idx = cache, layer_idx

    @property
    def keys(self) -> Float[Array, "b k s d"]:
        return self._cache._slot(self._layer_idx).read("keys")

    @property
    def values(self) -> Float[Array, "b v s e"]:
        return self._cache._slot(self._layer_idx).read("values")

    def get_seq_length(self) -> Int[Array, ""]:
        return self._cache.get_seq_length(self._layer_idx)
