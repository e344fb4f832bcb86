"""A perceptron whose inputs are standardised by stored buffers, with a table that is not stored."""

import torch
from torch import nn


class Standardise(nn.Module):
    """(x - mean) / deviation with persistent buffers, clipped at a non-persistent bound per feature."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        self.register_buffer("bound", torch.linspace(2.0, 3.0, features), persistent=False)

    def forward(self, x):
        x = (x - self.mean) / self.deviation.abs().clamp(min=0.1)
        return torch.maximum(torch.minimum(x, self.bound), -self.bound)


class MLP(nn.Module):
    """Standardised features, hidden layers with GELU and layer norm, a linear head."""

    def __init__(self, features=12, hidden=24, classes=5, depth=2):
        super().__init__()
        self.standardise = Standardise(features)
        self.inner = nn.ModuleList(nn.Linear(features if i == 0 else hidden, hidden) for i in range(depth))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        x = self.standardise(x)
        for layer in self.inner:
            x = nn.functional.gelu(layer(x))
        return self.head(self.norm(x)).log_softmax(-1)


def get_inputs():
    return [torch.randn(6, 12)]


def get_init_inputs():
    return []
