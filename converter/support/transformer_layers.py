"""Torch's transformer layers: attention and a feed-forward network, with norms before or after."""

from collections.abc import Callable
from typing import Any

from flax import nnx
from jaxtyping import Array, Float

from . import activations
from .layers import Dropout, LayerNorm, Linear
from .module import Module
from .multihead import MultiheadAttention

Activation = str | Callable[[Array], Array]
ACTIVATIONS = {"relu": activations.relu, "gelu": activations.gelu}  # what torch's layers know by name


def activation_of(value: Activation) -> Callable[[Array], Array]:
    """The function that a name or function stands for. Raises ValueError for a name that is not torch's."""
    if not isinstance(value, str):
        return value
    if value not in ACTIVATIONS:
        raise ValueError(f"transformer layer: activation is {value!r}, expected a function or one of {[*ACTIVATIONS]}")
    return ACTIVATIONS[value]


class TransformerEncoderLayer(Module):
    """Self-attention, then a feed-forward network."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        made: dict[str, Any] = {"config": config, "rngs": rngs}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = activation_of(activation)

    def __call__(
        self,
        src: Float[Array, "..."],
        src_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool = False,
    ) -> Array:
        """Map src [t, n, d_model] (batch_first: [n, t, d_model]) to its shape; masks as for MultiheadAttention."""
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _sa_block(self, x: Array, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Array:
        y, _ = self.self_attn(x, x, x, key_padding_mask, need_weights=False, attn_mask=attn_mask, is_causal=is_causal)
        return self.dropout1(y)

    def _ff_block(self, x: Array) -> Array:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to a memory, then a feed-forward network."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        made: dict[str, Any] = {"config": config, "rngs": rngs}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **made)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = activation_of(activation)

    def __call__(
        self,
        tgt: Float[Array, "..."],
        memory: Float[Array, "..."],
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Array:
        """Map tgt [t, n, d_model], seeing memory [s, n, d_model], to its shape (batch_first: n before t and s).

        Masks as for MultiheadAttention.
        """
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(self, x: Array, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Array:
        y, _ = self.self_attn(x, x, x, key_padding_mask, need_weights=False, attn_mask=attn_mask, is_causal=is_causal)
        return self.dropout1(y)

    def _mha_block(self, x: Array, mem: Array, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Array:
        given: dict[str, Any] = {"attn_mask": attn_mask, "is_causal": is_causal}
        y, _ = self.multihead_attn(x, mem, mem, key_padding_mask, need_weights=False, **given)
        return self.dropout2(y)

    def _ff_block(self, x: Array) -> Array:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
