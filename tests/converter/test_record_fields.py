"""Records of a source keep every field that their constructor takes."""

import jax

from tests.golden.harness import both_outputs, convert_text, error_of

_SOURCE = """
from dataclasses import dataclass
from typing import NamedTuple
import torch
from torch import nn

@dataclass
class Sizes:
    batch: int  # rows
    length: int
    unread: int

class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a = nn.Linear(width, width)
    def sizes(self, x):
        return Sizes(batch=x.shape[0], length=x.shape[1], unread=3)
    def forward(self, x):
        s = self.sizes(x)
        p = Pair(self.a(x), second=x)
        return p.first.reshape(s.batch * s.length, -1)

def get_inputs():
    return [torch.randn(2, 3, 4)]
"""


def test_fields_that_nothing_reads_stay(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(_SOURCE, tmp_path)
        assert not converted.conversion.gaps
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name
