"""Caches for generating step by step: `Cache` and `init_cache` for any model, `EncoderDecoderCache` for those with
cross attention.
"""

import contextlib
import inspect
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from .cache_layers import Bound, Cache

__all__ = ["Cache", "EncoderDecoderCache", "init_cache"]

UPDATED = "updated"


@jax.tree_util.register_pytree_node_class
class EncoderDecoderCache(Cache):
    """A decoder's own cache and one for its cross attention, whose keys and values are written once, from the encoder's
    output.
    """

    def __init__(self, self_attention_cache: Cache, cross_attention_cache: Cache):
        super().__init__([])
        self.self_attention_cache, self.cross_attention_cache = self_attention_cache, cross_attention_cache
        self.recording = self_attention_cache.recording

    @property
    def is_updated(self) -> "_Updated":
        """Which layers hold the encoder's keys and values: a static mapping."""
        return _Updated(self.cross_attention_cache)

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """`update` of the self-attention cache."""
        return self.self_attention_cache.update(key_states, value_states, layer_idx, *args, **kwargs)

    def get_seq_length(self, layer_idx: int | None = 0):
        """Positions of the decoder seen so far."""
        return self.self_attention_cache.get_seq_length(layer_idx)

    get_query_offset = get_seq_length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Positions that the decoder's buffers hold."""
        return self.self_attention_cache.get_max_length(layer_idx)

    def get_mask_sizes(self, query_length: int, layer_idx: int | None = 0) -> tuple[int, int]:
        """(length, offset) of the decoder's own keys."""
        return self.self_attention_cache.get_mask_sizes(query_length, layer_idx)

    def __len__(self) -> int:
        return len(self.self_attention_cache)

    def _arrays(self, layer_idx):
        return self.self_attention_cache._arrays(layer_idx)

    @contextlib.contextmanager
    def recorded(self, layers):
        """`recorded` of both caches."""
        with self.self_attention_cache.recorded(layers), self.cross_attention_cache.recorded(layers):
            yield

    def open(self, groups):
        """`open` of both caches, as a pair."""
        return self.self_attention_cache.open(groups), self.cross_attention_cache.open(groups)

    @contextlib.contextmanager
    def bound(self, state, position, index):
        """Bind the layer in both caches."""
        bound = Bound(state)
        with (
            self.self_attention_cache.bound(state[0], position, index) as own,
            self.cross_attention_cache.bound(state[1], position, index) as cross,
        ):
            yield bound
        bound.state = (own.state, cross.state)

    def close(self, groups, state):
        """`close` of both caches."""
        self.self_attention_cache.close(groups, state[0])
        self.cross_attention_cache.close(groups, state[1])

    def tree_flatten(self):
        """Both caches are children."""
        return (self.self_attention_cache, self.cross_attention_cache), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        """Inverse of `tree_flatten`; a child may be a stand-in that JAX puts in a leaf's place."""
        cache = cls.__new__(cls)
        Cache.__init__(cache, [])
        cache.self_attention_cache, cache.cross_attention_cache = children
        return cache


class _Updated:
    """`cache.is_updated` as a mapping from layer to a static flag."""

    def __init__(self, cache: Cache):
        self._cache = cache

    def __getitem__(self, layer_idx: int | None) -> bool:
        return UPDATED in self._cache._slot(layer_idx).flags

    def get(self, layer_idx: int | None, default: bool = False) -> bool:
        return self[layer_idx]

    def __setitem__(self, layer_idx: int | None, value: bool) -> None:
        flags = self._cache._slot(layer_idx).flags
        (flags.add if value else flags.discard)(UPDATED)


def init_cache(
    model: nnx.Module,
    batch: int,
    length: int,
    dtype: Any = None,
    *,
    encoder_length: int | None = None,
    **example_inputs,
) -> Cache | EncoderDecoderCache:
    """An empty cache for `batch` sequences of up to `length` positions, as `model` fills it.

    The model is called once abstractly (no memory, no arithmetic) to learn what its layers store. Models that take
    `decoder_input_ids`
    need `encoder_length`, the exact length of the encoder's output. `example_inputs` (arrays or `jax.ShapeDtypeStruct`,
    `batch` rows)
    replace the inputs that are made up otherwise: two token ids. `dtype` overrides the dtype of keys and values.

    Raises ValueError for a model whose call takes no `cache`, or whose inputs cannot be guessed.
    """
    names = _call_parameters(model)
    is_pair = "decoder_input_ids" in names or "encoder_hidden_states" in example_inputs
    caches = [Cache([], recording=True) for _ in range(2)]
    recorder = EncoderDecoderCache(*caches) if is_pair else caches[0]
    inputs = _example_inputs(model, names, batch, encoder_length, example_inputs)
    graph, state = nnx.split(model)
    jax.eval_shape(lambda state, inputs: (nnx.merge(graph, state)(**inputs, cache=recorder), None)[1], state, inputs)
    own, cross = _allocate(caches[0], length, dtype), _allocate(caches[1], None, dtype)
    return EncoderDecoderCache(own, cross) if is_pair else own


def _call_parameters(model: nnx.Module) -> set[str]:
    names = set(inspect.signature(model.__call__).parameters)
    if "cache" not in names:
        raise ValueError(
            f"{type(model).__name__}.__call__ takes no `cache` argument: this model does not generate step by step"
        )
    return names


def _example_inputs(
    model, names: set[str], batch: int, encoder_length: int | None, given: dict[str, Any]
) -> dict[str, Any]:
    """Abstract inputs of the recording call: those given, else token ids."""
    tokens = jax.ShapeDtypeStruct((batch, 2), jnp.int32)
    inputs = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in given.items()}
    is_encoder_decoder = "decoder_input_ids" in names
    if is_encoder_decoder and not {"decoder_input_ids", "decoder_inputs_embeds"} & set(inputs):
        inputs["decoder_input_ids"] = tokens
    if set(given) & {"input_ids", "inputs_embeds", "input_features", "input_values", "pixel_values", "encoder_outputs"}:
        return inputs
    if "input_ids" not in names:
        raise ValueError(
            f"{type(model).__name__} takes no `input_ids`: give init_cache an example of its main input by name"
        )
    if is_encoder_decoder and encoder_length is None:
        raise ValueError("an encoder-decoder model's cache needs encoder_length=, the length of the encoder's output")
    inputs["input_ids"] = jax.ShapeDtypeStruct((batch, encoder_length), jnp.int32) if is_encoder_decoder else tokens
    return inputs


def _allocate(recorded: Cache, length: int | None, dtype: Any) -> Cache:
    """Zeros for what a recording cache saw; the position axis gets `length`, or stays as seen."""
    groups = []
    for layers, stacked, entries in recorded._groups:
        arrays = {}
        for name, (shape, seen, axis) in entries.items():
            if axis is not None and length is not None:
                shape = (*shape[:axis], length, *shape[axis + 1 :])
            chosen = dtype if dtype is not None and axis is not None else seen
            arrays[name] = jnp.zeros((len(layers), *shape) if stacked else shape, chosen)
        groups.append((layers, stacked, arrays))
    return Cache(groups)
