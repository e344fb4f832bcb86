"""Layers whose weights torch computes from others: weight and spectral normalisation, applied as sources do."""

import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm


def normalised_conv(channels, dilation):
    """A convolution with weight normalisation."""
    return parametrizations.weight_norm(nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation))


class Block(nn.Module):
    """Dilated convolutions with a shortcut."""

    def __init__(self, channels, dilation):
        super().__init__()
        self.first = normalised_conv(channels, dilation)
        self.second = nn.Conv1d(channels, channels, 1)
        self.second = parametrizations.weight_norm(self.second, name="weight", dim=2)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Net(nn.Module):
    """Upsampling decoder with a bounded head."""

    def __init__(self, channels=4):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(channels, 2**i) for i in range(2)])
        self.up = parametrizations.weight_norm(nn.ConvTranspose1d(channels, channels, 4, stride=2, padding=1), dim=1)
        self.critic = nn.ModuleList(
            [spectral_norm(nn.Linear(channels, channels)), parametrizations.spectral_norm(nn.Linear(channels, 2))]
        )

    def forward(self, x):
        x = self.up(self.blocks(x)).transpose(1, 2)
        for layer in self.critic:
            x = torch.sin(layer(x))
        return x


def get_inputs():
    return [torch.randn(2, 4, 6)]
