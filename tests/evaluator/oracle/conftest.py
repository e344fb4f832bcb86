"""Resolved and recorded targets, shared by the oracle's tests; one CPU thread."""

import contextlib
import io
import textwrap

import pytest
import torch

from maxcode.evaluator.oracle.materialise import materialise
from maxcode.evaluator.oracle.record import record
from maxcode.evaluator.oracle.resolve import resolve
from maxcode.evaluator.oracle.session import Session
from maxcode.evaluator.oracle.target import load_target

torch.set_num_threads(1)

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, width, classes=5):
            super().__init__()
            self.conv = nn.Conv2d(3, width, 3, padding=1)
            self.bn = nn.BatchNorm2d(width)
            self.drop = nn.Dropout(0.5)
            self.head = nn.Linear(width, classes)

        def forward(self, x):
            return self.head(self.drop(torch.relu(self.bn(self.conv(x)))).mean((2, 3)))
"""
HELPERS = """
    def get_init_inputs():
        return [6]

    def get_inputs():
        return [torch.randn(2, 3, 9, 7)]
"""


@pytest.fixture(scope="session")
def resolved():
    """resolved("llama") -> the derived tiny target; each type is resolved once."""
    known = {}

    def get(name):
        if name not in known:
            with contextlib.redirect_stderr(io.StringIO()):
                given = {"text": f"transformers:{name}", "kind": "transformers", "type": name}
                known[name] = resolve(load_target(given))
        return dict(known[name])

    return get


@pytest.fixture
def net_file(tmp_path):
    """A file with a convolutional classifier and its own inputs."""
    path = tmp_path / "small_net.py"
    path.write_text(textwrap.dedent(NET) + "\n" + textwrap.dedent(HELPERS))
    return path


@pytest.fixture
def recorded(tmp_path):
    """recorded(target, ["exact"]) -> (index, run folder)."""

    def run(target, scenarios, **options):
        with contextlib.redirect_stderr(io.StringIO()):
            materialise(load_target(target), tmp_path / "source")
            session = Session(target, tmp_path / "source", **options)
            return record(session, tmp_path / "oracle", scenarios), tmp_path

    return run
