"""What a conversion reaches: classes, functions, constants and of classes only what is used."""

import ast
from pathlib import Path

from maxcode.converter.collect import collect
from maxcode.converter.context import Context
from maxcode.converter.source import Project

MODEL = """
import torch
from torch import nn
from layers import Layer, LIMIT

UNUSED = 5
SCALE = 2.0


def unused():
    return SCALE


def used(x):
    return x * SCALE


class Other(nn.Module):
    pass


class Net(nn.Module):
    kind = "net"
    forgotten = 1

    def __init__(self):
        super().__init__()
        self.layer = Layer(LIMIT)
        self.prepare()
        self.post_init()

    def prepare(self):
        pass

    def forward(self, x):
        return self.helper(used(self.layer(x)), self.kind)

    def helper(self, x, kind):
        return x

    def never(self):
        return unused()
"""
LAYERS = """
from torch import nn
LIMIT = 3


class Layer(nn.Module):
    def forward(self, x):
        return x
"""


def _collected(folder: Path, text: str = MODEL) -> Context:
    (folder / "model.py").write_text(text)
    (folder / "layers.py").write_text(LAYERS)
    context = Context(Project("model", str(folder / "model.py")), {}, "model.Net")
    collect(context)
    return context


def test_only_what_is_reached_is_collected_imported_files_first(tmp_path: Path):
    found = [d.qualified for d in _collected(tmp_path).definitions]
    assert found == ["layers.LIMIT", "layers.Layer", "model.SCALE", "model.used", "model.Net"]


def test_of_classes_only_used_members_are_kept(tmp_path: Path):
    net = _collected(tmp_path).definitions[-1].node
    names = [s.name if isinstance(s, ast.FunctionDef) else ast.unparse(s) for s in net.body]
    assert names == ["kind = 'net'", "__init__", "forward", "helper"]


def test_calls_without_effect_are_dropped(tmp_path: Path):
    text = ast.unparse(_collected(tmp_path).definitions[-1].node)
    assert "prepare" not in text
    assert "post_init" not in text


def test_mutual_recursion_ends(tmp_path: Path):
    text = MODEL.replace("return x * SCALE", "return used(x) if x is None else Net.helper(None, x, 1)")
    assert [d.name for d in _collected(tmp_path, text).definitions][-2:] == ["used", "Net"]
