"""Logical axis names are read off the words of a size."""

import ast

import pytest

from maxcode.converter.axes import axis_of, unique

FUNCTION = ast.parse(
    """
def __init__(self, config):
    self.head_dim = config.head_dim
    self.hidden = config.hidden_size
    heads = config.num_attention_heads
"""
).body[0]


@pytest.mark.parametrize(
    ("size", "axis"),
    [
        ("config.vocab_size", "vocab"), ("config.num_key_value_heads * self.head_dim", "kv_heads"),
        ("config.num_attention_heads * self.head_dim", "q_heads"), ("config.intermediate_size", "mlp"),
        ("config.num_experts", "exp"), ("config.max_position_embeddings", "position"), ("config.hidden_size", "embed"),
        ("self.hidden", "embed"), ("3", None), ("other", None),
    ],
)  # fmt: skip
def test_axis_of_a_size(size: str, axis: str | None):
    assert axis_of(ast.parse(size, mode="eval").body, FUNCTION) == axis


def test_no_axis_occurs_twice():
    assert len([a for a in unique(["embed", "embed"]) if a]) == 1
    assert unique(["embed", None, "mlp"]) == ("embed", None, "mlp")
