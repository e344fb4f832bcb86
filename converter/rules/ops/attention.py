"""Attention, dropout and padding."""

import jax.numpy as jnp
import numpy as np

from maxcode.converter.arguments import is_omitted
from maxcode.converter.rule import helper, op
from maxcode.converter.support import dispatch, multihead, random
from maxcode.converter.support.multihead import Projections


@op("torch.nn.functional.scaled_dot_product_attention", rtol=1e-8, atol=1e-9)
def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    return dispatch.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@op(
    "torch.nn.functional.multi_head_attention_forward",
    limits={"static_k or static_v": lambda static_k, static_v: not (is_omitted(static_k) and is_omitted(static_v))},
)
def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
    dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None,
    static_v=None, average_attn_weights=True, is_causal=False,
):  # fmt: skip
    """Attention whose weights the caller holds, in torch's layout; inputs [t, n, embed_dim]."""
    packed = None if use_separate_proj_weight else in_proj_weight
    parts = Projections(
        embed_dim_to_check, num_heads, packed, in_proj_bias, bias_k, bias_v,
        add_zero_attn=add_zero_attn, separate=(q_proj_weight, k_proj_weight, v_proj_weight),
    )  # fmt: skip
    return multihead.multi_head_attention_forward(
        query, key, value, parts, out_proj_weight, out_proj_bias, dropout_p if training else 0.0,
        key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask, average=average_attn_weights,
        is_causal=is_causal,
    )  # fmt: skip


@op("torch.nn.functional.dropout", "torch.dropout")
def dropout(input, p=0.5, training=True, inplace=False):
    return random.dropout(input, p, training)


@op("torch.nn.functional.dropout1d")
def dropout1d(input, p=0.5, training=True, inplace=False):
    return random.feature_dropout(input, p, training, 1)


@op("torch.nn.functional.dropout2d")
def dropout2d(input, p=0.5, training=True, inplace=False):
    return random.feature_dropout(input, p, training, 2)


@op("torch.nn.functional.dropout3d")
def dropout3d(input, p=0.5, training=True, inplace=False):
    return random.feature_dropout(input, p, training, 3)


@op("torch.nn.functional.alpha_dropout", "torch.alpha_dropout")
def alpha_dropout(input, p=0.5, training=False, inplace=False):
    return random.alpha_dropout(input, p, training)


@op("torch.nn.functional.feature_alpha_dropout", "torch.feature_alpha_dropout")
def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    return random.feature_alpha_dropout(input, p, training)


@helper
def nearest_entries(input, amounts):
    """Pad with the nearest entry where cropping takes a whole axis away: the end that was cropped last is repeated."""
    for axis, (low, high) in enumerate(amounts):
        nearest = np.clip(np.arange(-low, input.shape[axis] + high), 0, input.shape[axis] - 1)
        input = jnp.take(input, nearest, axis=axis)
    return input


@op("torch.nn.functional.pad")
def pad(input, pad, mode="constant", value=None):
    """Pad the last axes, given (low, high) from the last axis backwards; negative amounts crop."""
    amounts = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    amounts = [(0, 0)] * (input.ndim - len(amounts)) + amounts
    crop = tuple(
        slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(input.shape, amounts, strict=True)
    )
    if mode == "replicate" and 0 in input[crop].shape and input.size:
        return nearest_entries(input, amounts)
    grow = [(max(low, 0), max(high, 0)) for low, high in amounts]
    if mode == "constant":
        return jnp.pad(input[crop], grow, constant_values=0 if value is None else value)
    return jnp.pad(input[crop], grow, mode={"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])


@helper
def padded_with(input, amounts, value):
    """`pad` with a value."""
    return pad(input, amounts, "constant", value)


@op("torch.constant_pad_nd")
def constant_pad_nd(input, pad, value=0):
    return padded_with(input, pad, value)
