"""Torch's own transformer layers: a causal encoder, an encoder-decoder, attention with and without its weights."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Positions(nn.Module):
    """Sines and cosines added to the embeddings."""

    def __init__(self, width, length=32):
        super().__init__()
        position = torch.arange(length).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(length, width)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class LanguageModel(nn.Module):
    """A causal stack of encoder layers."""

    def __init__(self, width, heads, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.1, activation=nn.GELU(), batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, num_layers=layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.encoder(x, mask=mask, is_causal=True)


class Pooling(nn.Module):
    """A learned query that attends to the sequence."""

    def __init__(self, width, heads):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.MultiheadAttention(width, heads, kdim=width, vdim=2 * width, batch_first=True)

    def forward(self, x, ignored):
        query = self.query.expand(x.shape[0], -1, -1)
        values = torch.cat([x, F.gelu(x)], dim=-1)
        pooled, weights = self.attention(query, x, values, key_padding_mask=ignored)
        return pooled[:, 0], weights


class Net(nn.Module):
    """Translator with a pooled summary of its source."""

    def __init__(self, vocab_size=13, width=8, heads=2):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.positions = Positions(width)
        self.reader = LanguageModel(width, heads, 2)
        self.transformer = nn.Transformer(
            d_model=width, nhead=heads, num_encoder_layers=1, num_decoder_layers=2, dim_feedforward=12,
            activation=F.relu, batch_first=True,
        )
        decoder_layer = nn.TransformerDecoderLayer(width, heads, 12, activation=F.silu)
        self.refine = nn.TransformerDecoder(decoder_layer, 1)
        self.pool = Pooling(width, heads)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, source, target):
        x = self.reader(self.positions(self.embed(source)))
        y = self.positions(self.embed(target))
        mask = self.transformer.generate_square_subsequent_mask(y.size(1))
        ignored = source == 0
        y = self.transformer(
            x, y, tgt_mask=mask, src_key_padding_mask=ignored, memory_key_padding_mask=ignored, tgt_is_causal=True
        )
        y = self.refine(y.transpose(0, 1), x.transpose(0, 1)).transpose(0, 1)
        summary, weights = self.pool(x, ignored)
        return {"logits": self.head(y), "summary": summary, "weights": weights}


def get_inputs():
    return [torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]]), torch.randint(0, 13, (2, 4))]
