"""What the framework's length-dependent rope kept for itself goes with its decorator."""

import ast

import pytest

from maxcode.converter.passes.rope import drop_bookkeeping

CLASS = """
class Rotary(nn.Module):
    def __init__(self, config):
        self.max_seq_len_cached = config.max_position_embeddings
        self.original_max_seq_len = config.max_position_embeddings
        self.inv_freq = nn.Buffer(frequencies, persistent=False)
        self.original_inv_freq = nn.Buffer(frequencies.clone(), persistent=False)
        for kind in config.kinds:
            setattr(self, f"{kind}_inv_freq", nn.Buffer(frequencies, persistent=False))
            setattr(self, f"{kind}_original_inv_freq", nn.Buffer(frequencies.clone(), persistent=False))

    def forward(self, x, position_ids):
        return self.inv_freq * position_ids READ
"""


@pytest.mark.parametrize(
    ("read", "kept"), [("", set()), ("* self.original_max_seq_len", {"original_max_seq_len"})], ids=["unread", "read"]
)
def test_bookkeeping_is_dropped_unless_it_is_read(read: str, kept: set[str]):
    node = ast.parse(CLASS.replace("READ", read)).body[0]
    drop_bookkeeping(node)
    constructor = ast.unparse(node.body[0])
    stored = {n.attr for n in ast.walk(node.body[0]) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    assert stored == {"inv_freq"} | kept
    assert "original_inv_freq" not in constructor
    assert "_inv_freq" in constructor
