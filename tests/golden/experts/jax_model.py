"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax
import jax.numpy as jnp
from flax import nnx

from . import ops
from .layers import Linear
from .module import Leaf, Module, compute_dtype, normal, param
from .moe import group_by_expert
from .settings import at_config_settings

float32 = jnp.float32  # the parity check lifts this to float64


class Experts(Module):
    """Gated feed-forward experts with stacked weights. Source: torch_model.py:8."""

    gate_up_proj = Leaf()
    down_proj = Leaf()

    def __init__(self, num_experts, hidden_size, intermediate_size, *, config, rngs: nnx.Rngs):
        self.dtype = compute_dtype(config)
        self.num_experts = num_experts
        self.gate_up_proj = param(
            normal((num_experts, 2 * intermediate_size, hidden_size), 0.02),
            axes=("exp", "mlp", "embed"),
            config=config,
            rngs=rngs,
        )
        self.down_proj = param(
            normal((num_experts, hidden_size, intermediate_size), 0.02),
            axes=("exp", "embed", "mlp"),
            config=config,
            rngs=rngs,
        )

    def __call__(self, hidden_states, top_k_index, top_k_weights):
        groups = group_by_expert(top_k_index, self.num_experts)
        current_state = hidden_states[groups.token]
        gate, up = jnp.split(groups.linear(current_state, self.gate_up_proj), 2, axis=-1)
        current_hidden_states = groups.linear(jax.nn.silu(gate) * up, self.down_proj)
        current_hidden_states = current_hidden_states * top_k_weights[groups.token, groups.slot, None]
        final_hidden_states = groups.combine(current_hidden_states.astype(hidden_states.dtype))
        return final_hidden_states


class Net(Module):
    """Router and experts. Source: torch_model.py:34."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(
            hidden_size=config.hidden_size, num_experts=config.num_experts, top_k=config.top_k, config=config, rngs=rngs
        )

    def __init__(self, hidden_size=8, num_experts=5, top_k=2, *, config, rngs: nnx.Rngs):
        self.config = config
        self.top_k = top_k
        self.router = Linear(hidden_size, num_experts, bias=False, axes=("embed", "exp"), config=config, rngs=rngs)
        self.experts = Experts(num_experts, hidden_size, 6, config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, x):
        batch, length, width = x.shape
        tokens = x.reshape(-1, width)
        weights = jax.nn.softmax(self.router(tokens).astype(float32), axis=-1)
        top_weights, top_index = ops.topk(weights, self.top_k, -1)
        top_weights /= top_weights.sum(-1, keepdims=True)
        return self.experts(tokens, top_index, top_weights).reshape(batch, length, width)
