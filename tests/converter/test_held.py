"""Parameters in lists and dictionaries: their paths, and what they compute."""

import ast

import jax

from maxcode.converter import held
from maxcode.converter.initial import is_weight_write
from tests.golden.harness import both_outputs, convert_text, error_of

_SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.steps = nn.ParameterList([nn.Parameter(torch.full((width,), 1.5)) for _ in range(2)])
        self.steps.append(nn.Parameter(torch.linspace(0, 1, width)))
        self.named = nn.ParameterDict({"scale": nn.Parameter(torch.ones(width))})
        self.named["shift"] = nn.Parameter(torch.randn(width))
        rows = []
        for row in range(2):
            rows.append(nn.Parameter(torch.randn(width, width)))
        self.rows = nn.ParameterList(rows)
    def forward(self, x):
        for step in self.steps:
            x = torch.tanh(x * step)
        for i in range(len(self.rows)):
            x = x @ self.rows[i]
        return x * self.named["scale"] + self.named["shift"]

def get_inputs():
    return [torch.randn(3, 4)]
"""


def test_parameters_in_containers_compute_what_torch_computes(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(_SOURCE, tmp_path)
        assert not converted.conversion.gaps
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name


_LOCAL = """
def make(self, width):
    a = nn.Parameter(torch.zeros(width))
    b = nn.Parameter(torch.zeros(width))
    self.both = torch.cat([a, b])
    c = nn.Parameter(torch.zeros(width))
    self.c = c
    d = nn.Parameter(torch.zeros(width))
    self.register_parameter("d", d)
    e = nn.Parameter(torch.zeros(width))
    return e
"""


def test_a_local_parameter_stays_one_where_it_becomes_an_attribute():
    function = ast.parse(_LOCAL).body[0]
    assert [held.becomes_attribute(function, name) for name in "abcde"] == [False, False, True, True, True]


_LAYERS = """
def __init__(self, width, biased):
    self.a = nn.Linear(width, width, bias=False)
    self.a.bias = nn.Parameter(torch.zeros(width))
    self.b = nn.Linear(width, width)
    self.b.bias = nn.Parameter(torch.ones(width))
    self.c = nn.Linear(width, width, bias=biased)
    self.c.bias = nn.Parameter(torch.ones(width))
    self.b.weight.data[:, :2].uniform_(0, 1)
"""


def test_only_weights_that_exist_are_overwritten():
    function = ast.parse(_LAYERS).body[0]
    written = [is_weight_write(statement, function) for statement in function.body]
    assert written == [False, False, False, True, False, False, True]
