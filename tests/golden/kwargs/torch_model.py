"""Keywords handed through several levels, inheritance with super(), and a static method."""

import torch
from torch import nn


class Base(nn.Module):
    """What every mixer does."""

    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)

    @staticmethod
    def squash(x, scale=1.0):
        return torch.tanh(x * scale)

    def forward(self, x, **kwargs):
        return self.squash(self.proj(x), scale=kwargs.get("scale", 1.0))


class Shifted(Base):
    """A mixer with an offset."""

    def __init__(self, width, offset=0.5):
        super().__init__(width)
        self.offset = offset

    def forward(self, x, bias=None, **kwargs):
        y = super().forward(x, **kwargs) + self.offset
        return y if bias is None else y + bias


class Block(nn.Module):
    """Passes on what it does not know."""

    def __init__(self, width):
        super().__init__()
        self.mixer = Shifted(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, **kwargs):
        return x + self.mixer(self.norm(x), **kwargs)


class Net(nn.Module):
    """Two blocks."""

    def __init__(self, width=6):
        super().__init__()
        self.first = Block(width)
        self.second = Block(width)

    def forward(self, x, shift):
        x = self.first(x, scale=0.5, bias=shift)
        return self.second(x, bias=shift * 2)


def get_inputs():
    return [torch.randn(3, 6), torch.randn(6)]
