"""Blocks without gradients: what they leave behind is cut off from them."""

import jax

from tests.golden.harness import both_outputs, convert_text, error_of

TEXT = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 4), nn.Linear(5, 4)

    def forward(self, x):
        with torch.no_grad():
            target = self.a(x)
            best = target.argmax(-1)
            scale = target.norm()
        return self.b(x) * target / scale, best


def get_inputs():
    return [torch.randn(3, 5)]
"""


def test_floating_results_of_the_block_are_cut_off(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(TEXT, tmp_path)
        assert not converted.conversion.gaps
        cut = [line.strip() for line in converted.modeling.splitlines() if "stop_gradient" in line]
        assert cut == ["target = lax.stop_gradient(target)", "scale = lax.stop_gradient(scale)"]
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name
