"""What constructors of vision models do: layers made by helpers and methods, classes handed about, weights initialised."""

import math
from functools import partial
from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh}


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """3x3 convolution with padding."""
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


class LayerNorm(nn.Module):
    """Over channels, beside torch's own of the same name."""

    def __init__(self, channels: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size=(channels,)))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, None, self.eps).permute(0, 3, 1, 2)


class Block(nn.Module):
    expansion = 1

    def __init__(self, inputs, outputs, stride=1, downsample=None, norm: Optional[Callable[..., nn.Module]] = None, shift=0):
        super().__init__()
        norm = norm or partial(nn.BatchNorm2d, eps=1e-3)
        self.conv = conv3x3(inputs, outputs, stride)
        self.norm = norm(outputs)
        self.downsample = downsample
        mask = torch.triu(torch.full((4, 4), -0.5)) if shift > 0 else None
        self.register_buffer("mask", mask)

    def forward(self, x):
        out = self.norm(self.conv(x))
        if self.mask is not None:
            out = out + self.mask
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class PreNorm(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), inner

    def forward(self, x, **kwargs):
        return self.inner(self.norm(x), **kwargs)


class Mix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, width)

    def forward(self, x, scale=None):
        b, *_, device, dtype = *x.shape, x.device, x.dtype
        return self.out(x) * (1.0 if scale is None else scale) + torch.ones(b, 1, device=device, dtype=dtype)


class Scaled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, **kwargs):
        kwargs.update(scale=kwargs["scale"] * 2.0)
        return self.inner(x, **kwargs)


class Net(nn.Module):
    def __init__(self, block=Block, width=4, classes=3, activation="gelu", act_layer=nn.GELU):
        super().__init__()
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention")
        self.inputs = width
        self.stem = nn.Sequential(conv3x3(3, width), nn.BatchNorm2d(width), act_layer())
        self.first = self._make_layer(block, width, 1)
        self.second = self._make_layer(block, 2 * width, 2, stride=2)
        self.norm = LayerNorm(2 * width)
        self.act = ACTIVATIONS[activation]
        self.mix = PreNorm(2 * width, Scaled(Mix(2 * width)))
        self.feed = PreNorm(2 * width, nn.Linear(2 * width, 2 * width))
        self.head = nn.Linear(2 * width, classes)
        self.head.weight = nn.Parameter(torch.ones(classes, 2 * width) / width)
        self.head.bias.data.mul_(0.1)
        self._initialize_weights()

    def _make_layer(self, block, width, count, stride=1):
        downsample = None
        if stride != 1 or self.inputs != width * block.expansion:
            downsample = nn.Sequential(nn.Conv2d(self.inputs, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))
        layers = [block(self.inputs, width, stride, downsample, shift=stride - 1)]
        self.inputs = width * block.expansion
        for _ in range(1, count):
            layers.append(block(self.inputs, width))
        return nn.Sequential(*layers)

    def _initialize_weights(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                m.weight.data.normal_(0, math.sqrt(2.0 / n))
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.data.fill_(1)
                m.bias.data.zero_()

    def forward(self, x):
        if not self.flash:
            raise RuntimeError("an old torch")
        x = self.act(self.norm(self.second(self.first(self.stem(x))))).mean((2, 3))
        return self.head(self.feed(self.mix(x, scale=0.5)))


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
