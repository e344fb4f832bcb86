"""Masks are those of transformers, value for value."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import DynamicCache, LlamaConfig, StaticCache, masking_utils

from maxcode.converter.support import masks
from maxcode.converter.support.cache import Cache

BATCH, HEADS, DIM = 3, 2, 4
PADDING = {
    "none": None,
    "ones": lambda t: np.ones((BATCH, t), np.int64),
    "left": lambda t: (np.arange(t) >= np.array([[0], [2], [3]])).astype(np.int64),
    "right": lambda t: (np.arange(t) < np.array([[t], [t - 2], [1]])).astype(np.int64),
}
CAUSAL = {"create_causal_mask": {}, "create_sliding_window_causal_mask": {}, "create_chunked_causal_mask": {}}


def configs(**fields):
    fields = {"sliding_window": 3, "attention_chunk_size": 3} | fields
    theirs = LlamaConfig(num_hidden_layers=1, attn_implementation="eager")
    for name, value in fields.items():
        setattr(theirs, name, value)
    return theirs, types.SimpleNamespace(**fields)


def caches(past, length):
    """A transformers cache and ours, both holding `past` positions."""
    theirs = DynamicCache()
    zeros = np.zeros((BATCH, HEADS, past, DIM), np.float32)
    theirs.update(torch.from_numpy(zeros), torch.from_numpy(zeros), 0)
    buffer = jnp.zeros((BATCH, HEADS, length, DIM))
    arrays = {"keys": buffer, "values": buffer, "length": jnp.zeros((), jnp.int32)}
    ours = Cache([((0,), False, arrays)])
    ours.update(jnp.asarray(zeros), jnp.asarray(zeros), 0)
    return theirs, ours


def both(name, query, attention_mask, *, config=None, past=None, length=None, **kwargs):
    """The mask of transformers and ours (under jit), as numpy arrays or None."""
    theirs_config, ours_config = config or configs()
    embeds = np.zeros((BATCH, query, 8), np.float32)
    theirs_cache, ours_cache = (None, None) if past is None else caches(past, length)
    arrays = {k: v for k, v in kwargs.items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in kwargs.items() if k not in arrays}
    theirs_mask = None if attention_mask is None else torch.from_numpy(attention_mask)
    theirs = getattr(masking_utils, name)(
        theirs_config,
        torch.from_numpy(embeds),
        theirs_mask,
        cache=theirs_cache,
        **{k: torch.from_numpy(v) for k, v in arrays.items()},
        **{k: v[0] for k, v in rest.items()},
    )

    def build(attention_mask, cache, arrays):
        options = arrays | {k: v[1] for k, v in rest.items()}
        return getattr(masks, name)(ours_config, jnp.asarray(embeds), attention_mask, cache=cache, **options)

    ours = jax.jit(build)(attention_mask, ours_cache, arrays)
    return (None if m is None else np.asarray(m) for m in (theirs, ours))


def assert_same(theirs, ours, seen=None):
    """Equal; with a cache, keys that transformers does not hold yet are hidden in ours."""
    assert theirs.shape[:3] == ours.shape[:3]
    assert theirs.dtype == ours.dtype
    np.testing.assert_array_equal(ours[..., : theirs.shape[-1]], theirs)
    assert (ours[..., theirs.shape[-1] :] == np.finfo(ours.dtype).min).all()


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("query", [1, 2, 7])
def test_causal_masks_without_a_cache(name, padding, query):
    mask = PADDING[padding] and PADDING[padding](query)
    assert_same(*both(name, query, mask))


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize(("past", "query"), [(4, 1), (5, 3), (1, 1)])
@pytest.mark.parametrize("full_length", [False, True], ids=["mask so far", "mask as long as the buffer"])
def test_causal_masks_with_a_cache(name, padding, past, query, full_length):
    length = 11
    mask = PADDING[padding] and PADDING[padding](past + query)
    theirs, ours = both(name, query, mask, past=past, length=length)
    if full_length and mask is not None:
        longer = np.concatenate([mask, np.ones((BATCH, length - past - query), np.int64)], axis=1)
        _, ours = both(name, query, longer, past=past, length=length)
    assert_same(theirs, ours)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_fresh_cache_gives_the_static_cache_mask(name):
    theirs_config, ours_config = configs(sliding_window=20, attention_chunk_size=20)
    theirs = getattr(masking_utils, name)(
        theirs_config,
        torch.zeros(BATCH, 5, 8),
        torch.from_numpy(PADDING["left"](5)),
        cache=StaticCache(config=LlamaConfig(num_hidden_layers=1), max_cache_len=9),
    )
    _, cache = caches(0, 9)
    ours = getattr(masks, name)(ours_config, jnp.zeros((BATCH, 5, 8)), PADDING["left"](5), cache=cache)
    np.testing.assert_array_equal(np.asarray(ours), theirs.numpy())


@pytest.mark.parametrize("rows", [1, BATCH])
@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize(
    "positions", [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 0, 1, 2, 3], [5, 6, 7, 8, 9, 10, 11], [0, 0, 1, 0, 1, 2, 3]]
)
def test_packed_sequences_do_not_see_each_other(name, positions, rows):
    position_ids = np.tile(np.array(positions), (rows, 1))
    assert_same(*both(name, 7, None, position_ids=position_ids))


def test_one_packed_row_among_plain_ones():
    position_ids = np.array([[0, 1, 2, 3, 4], [0, 1, 0, 1, 2], [7, 8, 9, 10, 11]])
    for name in CAUSAL:
        assert_same(*both(name, 5, None, position_ids=position_ids))


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("past", [None, 3])
def test_blocks_see_themselves_whole(name, past):
    blocks = np.array([[-1, 0, 0, 0, -1, 1, 1], [-1] * 7, [0, 0, 1, 1, 1, -1, -1]])
    query = 7 if past is None else 4
    mask = PADDING["left"](7)
    assert_same(*both(name, query, mask, past=past, length=9, block_sequence_ids=blocks))


@pytest.mark.parametrize("name", [*CAUSAL, "create_bidirectional_mask", "create_bidirectional_sliding_window_mask"])
def test_callers_mask_functions_combine(name):
    allowed = np.array([True, False, True, True, False, True, False])
    functions = {
        "or_mask_function": (lambda b, h, q, k: (k == 2) & (b == 1), lambda b, h, q, k: (k == 2) & (b == 1)),
        "and_mask_function": (
            lambda b, h, q, k: torch.from_numpy(allowed)[k],
            lambda b, h, q, k: jnp.asarray(allowed)[k],
        ),
    }
    for chosen in ({"or_mask_function"}, {"and_mask_function"}, set(functions)):
        assert_same(*both(name, 7, PADDING["right"](7), **{k: v for k, v in functions.items() if k in chosen}))


@pytest.mark.parametrize("name", ["create_bidirectional_mask", "create_bidirectional_sliding_window_mask"])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("query", [2, 7])
def test_bidirectional_masks(name, padding, query):
    assert_same(*both(name, query, PADDING[padding](query)))


def test_bidirectional_masks_that_hide_nothing_are_none():
    assert list(both("create_bidirectional_mask", 7, None)) == [None, None]
    assert list(both("create_bidirectional_sliding_window_mask", 2, None)) == [None, None]
    assert_same(*both("create_bidirectional_sliding_window_mask", 7, None))
    theirs, ours = both("create_bidirectional_mask", 7, PADDING["ones"](7))
    assert theirs is None
    assert not ours.any()


def test_cross_attention_takes_the_encoders_length():
    encoder = np.zeros((BATCH, 7, 8), np.float32)
    theirs, ours = both("create_bidirectional_mask", 2, PADDING["right"](7), encoder_hidden_states=encoder)
    assert ours.shape == (BATCH, 1, 2, 7)
    assert_same(theirs, ours)


@pytest.mark.parametrize("name", ["create_causal_mask", "create_sliding_window_causal_mask"])
def test_is_causal_false_makes_it_bidirectional(name):
    assert_same(*both(name, 7, PADDING["left"](7), config=configs(is_causal=False)))


def test_a_4d_mask_is_used_as_it_is():
    mask = np.random.default_rng(0).standard_normal((BATCH, 1, 4, 4)).astype(np.float32)
    for name in CAUSAL:
        theirs, ours = both(name, 4, mask)
        np.testing.assert_array_equal(theirs, ours)
    theirs, ours = both("create_causal_mask", 2, mask[:, :, :2], past=2, length=9)
    assert_same(theirs, ours)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_hidden_is_the_lowest_number_of_the_inputs_dtype(dtype):
    with jax.enable_x64(dtype == "float64"):
        mask = masks.create_causal_mask(configs()[1], jnp.zeros((1, 3, 8), dtype), None, None)
        assert mask.dtype == dtype
        assert float(mask[0, 0, 0, 2]) == torch.finfo(getattr(torch, dtype)).min


def test_recurrent_mask_is_that_of_the_tokens_at_hand():
    embeds, config = np.zeros((BATCH, 4, 8), np.float32), configs()
    for mask, past in ((PADDING["left"](7), 3), (PADDING["left"](4), None), (None, None)):
        theirs, ours = both("create_recurrent_attention_mask", 4, mask, past=past, length=11)
        assert (theirs is None and ours is None) or np.array_equal(theirs, ours)
    longer = np.concatenate([PADDING["left"](7), np.ones((BATCH, 4), np.int64)], axis=1)
    _, ours = both("create_recurrent_attention_mask", 4, longer, past=3, length=11)
    np.testing.assert_array_equal(ours, PADDING["left"](7)[:, 3:])
    assert masks.create_recurrent_attention_mask(config[1], jnp.asarray(embeds[:, :1]), PADDING["left"](7)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"layer_types": ["hybrid", "hybrid_sliding", "chunked_attention", "conv"]},
        {},
        {"sliding_window": None},
        {"sliding_window": None, "attention_chunk_size": None},
    ],
)
def test_masks_for_generate(fields):
    theirs_config, ours_config = configs(**fields)
    embeds, mask = np.zeros((BATCH, 7, 8), np.float32), PADDING["left"](7)
    theirs = masking_utils.create_masks_for_generate(
        theirs_config, torch.from_numpy(embeds), torch.from_numpy(mask), cache=None
    )
    ours = masks.create_masks_for_generate(ours_config, jnp.asarray(embeds), jnp.asarray(mask), None)
    if not isinstance(theirs, dict):
        theirs, ours = {"all": theirs}, {"all": ours}
    assert theirs.keys() == ours.keys()
    for name in theirs:
        np.testing.assert_array_equal(np.asarray(ours[name]), theirs[name].numpy())


def test_a_missing_setting_is_named():
    config = types.SimpleNamespace()
    with pytest.raises(ValueError, match="sliding_window is not set"):
        masks.create_sliding_window_causal_mask(config, jnp.zeros((1, 3, 8)), None, None)
