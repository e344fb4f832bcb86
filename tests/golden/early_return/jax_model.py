"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax
import jax.numpy as jnp
from flax import nnx

from .container import ModuleList
from .layers import Linear
from .module import Module
from .settings import at_config_settings


class Pool(Module):
    """Mean over positions, weighted if a mask is given. Source: torch_model.py:7."""

    def __init__(self, kind="mean"):
        if kind not in ("mean", "last"):
            raise ValueError(f"unknown pool {kind!r}")
        self.kind = kind

    def __call__(self, x, mask=None):
        if self.kind == "last":
            return x[:, -1]
        if mask is None:
            return x.mean(1)
        weights = jnp.expand_dims(mask.astype(x.dtype), -1)
        return (x * weights).sum(1) / jnp.clip(weights.sum(1), min=1)


class Net(Module):
    """Parallel projections, pooled three ways. Source: torch_model.py:25."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(width=config.width, heads=config.heads, config=config, rngs=rngs)

    def __init__(self, width=5, heads=3, *, config, rngs: nnx.Rngs):
        self.config = config
        self.heads = ModuleList([Linear(width, width, config=config, rngs=rngs) for _ in range(heads)])
        self.mean = Pool()
        self.last = Pool("last")

    @at_config_settings
    def __call__(self, x, mask):
        assert x.ndim == 3, f"expected batch, length, width; found {tuple(x.shape)}"
        together = jnp.stack([jax.nn.sigmoid(head(x)) for head in self.heads], axis=0).max(0)
        pooled = {"mean": self.mean(together), "masked": self.mean(together, mask=mask), "last": self.last(together)}
        return {name: jax.nn.softmax(value, axis=-1) for name, value in pooled.items()}
