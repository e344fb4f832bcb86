"""Attention and transformer layers; what they are made of keeps torch's names, so that weights map one to one."""

from maxcode.converter.rule import module
from maxcode.converter.support.multihead import MultiheadAttention


@module("torch.nn.MultiheadAttention")
def multihead_attention(
    embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
    batch_first=False, device=None, dtype=None,
):  # fmt: skip
    return MultiheadAttention(
        embed_dim, num_heads, dropout=dropout, bias=bias, add_bias_kv=add_bias_kv, add_zero_attn=add_zero_attn,
        kdim=kdim, vdim=vdim, batch_first=batch_first,
    )  # fmt: skip
