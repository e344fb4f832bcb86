"""`--on-gap trace`: a class whose forward no rule converts is lowered from its graph, and says so."""

import json

import pytest

from maxcode.cli import main
from maxcode.errors import Exit

NET = """
import torch
from torch import nn
from torch.nn import functional as F


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 2 * width)

    def forward(self, x, scale=None):
        parts = {}
        exec("parts['a'], parts['b'] = self.proj(x).chunk(2, dim=-1)")
        return F.gelu(parts["a"]) * torch.sigmoid(parts["b"])


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.gate, self.head = Gate(width), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.gate(x))


def get_inputs():
    return [torch.randn(4, 8)]
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return "net.py:Net"


def test_traced_part_is_named(net, tmp_path, capsys):
    status = main(["convert", net, "-o", "out", "--on-gap", "trace", "--no-gate", "--json", "--quiet"])
    record = json.loads(capsys.readouterr().out)
    assert (status, record["status"], record["gaps"]) == (Exit.INCOMPLETE, "traced", [])
    (part,) = record["traced"]
    assert part["name"] == "Gate"
    assert part["reason"].startswith("exec: ")
    text = (tmp_path / "out" / "out" / "modeling.py").read_text()
    assert "# Traced: " in text
    assert "traced where scale is None" in text


@pytest.mark.slow
def test_traced_part_passes_the_gate_and_is_not_verified(net, capsys):
    assert main(["convert", net, "-o", "out", "--on-gap", "trace", "--json", "--quiet"]) == Exit.INCOMPLETE
    record = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check["status"] for check in record["checks"]}
    assert record["status"] == "traced"
    assert checks["exact"] == checks["gradients"] == checks["weights"] == "pass"
    assert "fail" not in checks.values()


def test_without_the_option_it_stays_a_gap(net, capsys):
    assert main(["convert", net, "-o", "out", "--no-gate", "--json", "--quiet"]) == Exit.INCOMPLETE
    record = json.loads(capsys.readouterr().out)
    assert (record["status"], record["traced"]) == ("gaps", [])
    assert [(gap["code"], gap["torch_name"]) for gap in record["gaps"]] == [("CV107", "exec")]


def test_what_cannot_be_traced_stays_a_gap_and_says_why(net, tmp_path, capsys):
    (tmp_path / "net.py").write_text(NET.replace("return F.gelu", "x.mul_(2)\n        return F.gelu"))
    assert main(["convert", net, "-o", "out", "--on-gap", "trace", "--no-gate", "--json", "--quiet"]) == Exit.INCOMPLETE
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "gaps"
    assert "not traced: the graph writes in place" in record["gaps"][0]["hint"]
