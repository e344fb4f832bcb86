"""What a model remembers from one call of a generation to the next: arrays by name, held by the cache.

A model that is called without a cache remembers nothing, as one that was just built.
"""

from typing import Any

import jax
from jaxtyping import Array

from .cache import Cache


def recalled(cache: Cache | None, name: str) -> Array | None:
    """What `remember` kept under a name in an earlier call; None where nothing was. Which of both is static."""
    return None if cache is None else _own(cache).notes.get(name)


def remember(cache: Cache | None, name: str, value: Array) -> None:
    """Keep an array for the calls that go on with this cache."""
    if cache is not None and not cache.recording:
        _own(cache).notes[name] = value


def has_past(cache: Cache | None) -> Any:
    """Whether the cache holds positions of earlier calls: static where one of these calls left something behind."""
    if cache is None or cache.recording:
        return False
    length = cache.get_seq_length()
    if not isinstance(length, jax.core.Tracer):
        return bool(length > 0)
    return True if _own(cache).began_with_notes else length > 0


def _own(cache: Cache) -> Cache:
    """The cache itself, or a decoder's own of a pair."""
    return getattr(cache, "self_attention_cache", cache)
