"""Torch's transformer: stacks of equal layers, and the encoder-decoder made of two."""

import copy
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from .container import ModuleList
from .layers import LayerNorm
from .module import Module
from .transformer_layers import Activation, TransformerDecoderLayer, TransformerEncoderLayer

float32 = jnp.float32  # the exact check lifts this to float64


def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Float[Array, "sz sz"]:
    """The causal mask to add to scores: 0 up to the diagonal, -inf above it. `device` has no effect."""
    return jnp.where(jnp.tri(sz, dtype=bool), 0.0, -jnp.inf).astype(float32 if dtype is None else dtype)


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, then a norm if one is given."""

    def __init__(
        self,
        encoder_layer: Any,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def __call__(
        self,
        src: Float[Array, "..."],
        mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool | None = None,
    ) -> Array:
        """Map src [t, n, d_model] (batch_first: [n, t, d_model]) to its shape; masks as for MultiheadAttention."""
        # Torch finds out for itself whether a mask is the causal one, to choose a kernel; the result is the mask's.
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=is_causal is True, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, then a norm if one is given."""

    def __init__(
        self,
        decoder_layer: Any,
        num_layers: int,
        norm: Any = None,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def __call__(
        self,
        tgt: Float[Array, "..."],
        memory: Float[Array, "..."],
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Array:
        """Map tgt [t, n, d_model], seeing memory [s, n, d_model], to its shape (batch_first: n before t and s)."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal is True,
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder (Vaswani et al., 2017), each with a final norm, or own ones."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        made: dict[str, Any] = {"config": config, "rngs": rngs}
        sides = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        encoder, decoder = custom_encoder, custom_decoder
        if encoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
            encoder = TransformerEncoder(TransformerEncoderLayer(*sides, **made), num_encoder_layers, norm)
        if decoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
            decoder = TransformerDecoder(TransformerDecoderLayer(*sides, **made), num_decoder_layers, norm)
        self.encoder, self.decoder = encoder, decoder
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def __call__(
        self,
        src: Float[Array, "..."],
        tgt: Float[Array, "..."],
        src_mask: Array | None = None,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Array:
        """Encode src [s, n, d_model] and decode tgt [t, n, d_model] to its shape (batch_first: n before s and t)."""
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Float[Array, "sz sz"]:
        """The causal mask, as the function of this name makes it."""
        return generate_square_subsequent_mask(sz, dtype=dtype)
