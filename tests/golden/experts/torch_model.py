"""Expert routing by a loop over the experts that were chosen."""

import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    """Gated feed-forward experts with stacked weights."""

    def __init__(self, num_experts, hidden_size, intermediate_size):
        super().__init__()
        self.num_experts = num_experts
        self.gate_up_proj = nn.Parameter(torch.randn(num_experts, 2 * intermediate_size, hidden_size))
        self.down_proj = nn.Parameter(torch.randn(num_experts, hidden_size, intermediate_size))

    def forward(self, hidden_states, top_k_index, top_k_weights):
        final_hidden_states = torch.zeros_like(hidden_states)
        with torch.no_grad():
            expert_mask = F.one_hot(top_k_index, num_classes=self.num_experts)
            expert_mask = expert_mask.permute(2, 1, 0)
            expert_hit = torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert_idx in expert_hit:
            expert_idx = expert_idx[0]
            top_k_pos, token_idx = torch.where(expert_mask[expert_idx])
            current_state = hidden_states[token_idx]
            gate, up = F.linear(current_state, self.gate_up_proj[expert_idx]).chunk(2, dim=-1)
            current_hidden_states = F.linear(F.silu(gate) * up, self.down_proj[expert_idx])
            current_hidden_states = current_hidden_states * top_k_weights[token_idx, top_k_pos, None]
            final_hidden_states.index_add_(0, token_idx, current_hidden_states.to(final_hidden_states.dtype))
        return final_hidden_states


class Net(nn.Module):
    """Router and experts."""

    def __init__(self, hidden_size=8, num_experts=5, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(hidden_size, num_experts, bias=False)
        self.experts = Experts(num_experts, hidden_size, 6)

    def forward(self, x):
        batch, length, width = x.shape
        tokens = x.reshape(-1, width)
        weights = F.softmax(self.router(tokens), dim=-1, dtype=torch.float32)
        top_weights, top_index = torch.topk(weights, self.top_k, dim=-1)
        top_weights /= top_weights.sum(dim=-1, keepdim=True)
        return self.experts(tokens, top_index, top_weights).reshape(batch, length, width)


def get_inputs():
    return [torch.randn(2, 6, 8)]
