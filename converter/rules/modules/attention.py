"""Attention and transformer layers; what they are made of keeps torch's names, so that weights map one to one."""

import ast

from maxcode.converter.arguments import fact, is_omitted, is_string
from maxcode.converter.rule import module
from maxcode.converter.support.multihead import MultiheadAttention
from maxcode.converter.support.transformer import Transformer, TransformerDecoder, TransformerEncoder
from maxcode.converter.support.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer


def _may_be_a_module(activation):
    """Whether an activation is perhaps a layer: in torch, copies of a decoder layer then compute relu."""
    is_function = fact(activation).kind == "callable" or isinstance(activation, ast.Lambda)
    return not (is_omitted(activation) or is_string(activation) or is_function)


_ACTIVATION = {"activation is a layer, which copies of a decoder layer lose; give a function or name": _may_be_a_module}


@module("torch.nn.MultiheadAttention")
def multihead_attention(
    embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
    batch_first=False, device=None, dtype=None,
):  # fmt: skip
    return MultiheadAttention(
        embed_dim, num_heads, dropout=dropout, bias=bias, add_bias_kv=add_bias_kv, add_zero_attn=add_zero_attn,
        kdim=kdim, vdim=vdim, batch_first=batch_first,
    )  # fmt: skip


@module("torch.nn.TransformerEncoderLayer")
def transformer_encoder_layer(
    d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5, batch_first=False,
    norm_first=False, bias=True, device=None, dtype=None,
):  # fmt: skip
    return TransformerEncoderLayer(
        d_model, nhead, dim_feedforward=dim_feedforward, dropout=dropout, activation=activation,
        layer_norm_eps=layer_norm_eps, batch_first=batch_first, norm_first=norm_first, bias=bias,
    )  # fmt: skip


@module("torch.nn.TransformerDecoderLayer", limits=_ACTIVATION)
def transformer_decoder_layer(
    d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5, batch_first=False,
    norm_first=False, bias=True, device=None, dtype=None,
):  # fmt: skip
    return TransformerDecoderLayer(
        d_model, nhead, dim_feedforward=dim_feedforward, dropout=dropout, activation=activation,
        layer_norm_eps=layer_norm_eps, batch_first=batch_first, norm_first=norm_first, bias=bias,
    )  # fmt: skip


@module("torch.nn.TransformerEncoder")
def transformer_encoder(encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
    return TransformerEncoder(encoder_layer, num_layers, norm=norm)


@module("torch.nn.TransformerDecoder")
def transformer_decoder(decoder_layer, num_layers, norm=None):
    return TransformerDecoder(decoder_layer, num_layers, norm=norm)


@module("torch.nn.Transformer", limits=_ACTIVATION)
def transformer(
    d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, dropout=0.1,
    activation="relu", custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False,
    norm_first=False, bias=True, device=None, dtype=None,
):  # fmt: skip
    return Transformer(
        d_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, dropout=dropout, activation=activation,
        custom_encoder=custom_encoder, custom_decoder=custom_decoder, layer_norm_eps=layer_norm_eps,
        batch_first=batch_first, norm_first=norm_first, bias=bias,
    )  # fmt: skip
