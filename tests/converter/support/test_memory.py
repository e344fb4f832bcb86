"""What a model remembers in its cache between calls."""

import jax
import jax.numpy as jnp

from maxcode.converter.support.cache import Cache, EncoderDecoderCache
from maxcode.converter.support.memory import has_past, recalled, remember


def make_cache():
    return Cache([((0,), False, {"keys": jnp.zeros((1, 1, 8, 2)), "values": jnp.zeros((1, 1, 8, 2)),
                                 "length": jnp.zeros((), jnp.int32)})])  # fmt: skip


def step(cache, keys):
    if recalled(cache, "Net.offset") is None or not has_past(cache):
        remember(cache, "Net.offset", keys.sum())
    offset = recalled(cache, "Net.offset")
    cache.update(keys, keys, 0)
    return cache, offset


def test_what_the_first_call_leaves_the_later_ones_read():
    run, cache = jax.jit(step), make_cache()
    cache, first = run(cache, jnp.ones((1, 1, 3, 2)))
    for _ in range(2):
        cache, later = run(cache, jnp.full((1, 1, 1, 2), 5.0))
        assert float(later) == float(first) == 6.0
    assert int(cache.get_seq_length()) == 5


def test_a_cache_without_positions_is_new_whatever_it_holds():
    cache = make_cache()
    remember(cache, "Net.offset", jnp.ones(()))
    assert has_past(cache) is False
    cache.update(jnp.ones((1, 1, 2, 2)), jnp.ones((1, 1, 2, 2)), 0)
    assert has_past(cache) is True


def test_without_a_cache_nothing_is_remembered():
    remember(None, "Net.offset", jnp.ones(()))
    assert recalled(None, "Net.offset") is None
    assert has_past(None) is False


def test_a_pair_remembers_in_the_decoders_own_cache():
    pair = EncoderDecoderCache(make_cache(), make_cache())
    remember(pair, "Net.offset", jnp.ones(()))
    copied = jax.tree.map(lambda x: x + 1, pair)
    assert float(recalled(copied, "Net.offset")) == 2.0
