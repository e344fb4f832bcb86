"""Forwards of submodules as straight lines of torch."""

import textwrap

import pytest

from maxcode.evaluator.oracle.resolve import resolve
from maxcode.evaluator.oracle.session import Session
from maxcode.evaluator.oracle.target import load_target
from maxcode.evaluator.oracle.trace import trace_classes

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(i) for i in range(2)])

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


def get_inputs():
    return [torch.randn(3, 7, 8)]


class Part(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number, self.proj = number, nn.Linear(8, 8)
"""
KNOWN = {
    "torch.nn.functional.linear", "torch.nn.functional.gelu", "torch.Tensor.mul", "torch.Tensor.add", "torch.Tensor.to",
    "torch.Tensor.softmax", "torch.Tensor.expand", "torch.Tensor.mean",
}  # fmt: skip


@pytest.fixture
def traced(tmp_path):
    """traced("forward's text", …) -> the record of the class `Part`."""

    def run(forward: str, known: set[str] = KNOWN) -> dict:
        path = tmp_path / "traced_net.py"
        path.write_text(HEAD + "\n" + textwrap.indent(textwrap.dedent(forward).strip(), "    ") + "\n")
        given = {"text": "net", "kind": "module", "path": str(path), "module": "traced_net", "class_name": "Net"}
        session = Session(resolve(load_target(given)), None)
        (found,) = trace_classes(session, ["traced_net.Part"], known).values()
        return found

    return run


def test_graph_becomes_lines_of_torch(traced):
    found = traced("""
        def forward(self, x, mask=None, scale=2.0):
            y = F.gelu(self.proj(x)) * scale
            y = y + y[:, :1].expand(-1, x.shape[1], -1)
            return y.float().softmax(-1).to(x.dtype)
    """)
    assert "refused" not in found, found
    assert [line.partition(" = ")[2] for line in found["body"][:3]] == [
        "x.shape[1]",
        "torch.nn.functional.linear(x, self.proj.weight, self.proj.bias)",
        "torch.nn.functional.gelu(linear)",
    ]
    assert found["body"][-2].endswith("softmax.to(x.dtype)")  # the model's own dtype is not fixed
    assert any(line.endswith("to(torch.float32)") for line in found["body"])  # an explicit one is
    assert [check.partition(":")[0] for check in found["checks"]] == [
        "if mask is not None",
        "if scale != 2.0",
        "if x.shape[2] != 8",
    ]
    assert found["variables"]["x"] == {"kinds": ["tensor"], "dtypes": ["float32"], "ndims": [3]}


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("def forward(self, x):\n    return x.add_(self.proj(x))", "in place"),
        ("def forward(self, x):\n    return self.proj(x) if x.sum() > 0 else x", "torch.export"),
        ("def forward(self, x):\n    return self.proj(x) if self.number else x", "2 instances have different graphs"),
        ("def forward(self, x):\n    return torch.special.i0(self.proj(x))", "no rule for aten.i0"),
        ("def forward(self, x):\n    return {1, 2} and self.proj(x) * torch.tensor(2.0)", "constant"),
    ],
)
def test_what_has_no_text_says_why(traced, forward, reason):
    assert reason in traced(forward)["refused"]


def test_a_source_that_does_not_run_in_every_dtype_is_refused(traced):
    found = traced("""
        def forward(self, x):
            return torch.special.airy_ai(self.proj(x))
    """)
    assert "the source does not run (NotImplementedError" in found["refused"]
