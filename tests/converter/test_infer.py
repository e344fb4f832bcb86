"""Kinds of expressions that no run saw."""

import ast
from pathlib import Path

import pytest

from maxcode.converter.context import Context, Definition
from maxcode.converter.infer import Kinds, annotation_kinds
from maxcode.converter.source import Project

CODE = """
import torch
import torch.nn.functional as F
from typing import Optional

class Net:
    def f(self, x: torch.Tensor, n: int, m: Optional[torch.Tensor] = None, unknown=None):
        y = x * n
        b, t = x.shape
        q, k = x.chunk(2)
        w = F.relu(unknown)
        c = x > 0
        is_none = m is None
        count = 1
        size = x.size(0)
        unknown += 1
        pair = (x, n)
        either = x if n else m
        return y
"""


@pytest.fixture
def kinds(tmp_path: Path) -> Kinds:
    path = tmp_path / "net.py"
    path.write_text(CODE)
    facts = {"classes": {"net.Net": {"attributes": {"weight": ["param"], "depth": ["int"]}}}}
    context = Context(Project("net", str(path)), facts, "net.Net")
    file = context.project.files["net"]
    definition = Definition("Net", file, file.definitions["Net"])
    return Kinds(context, definition, next(iter(definition.functions())))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x", {"tensor"}), ("n", {"int"}), ("y", {"tensor"}), ("b", {"int"}), ("q", {"tensor"}), ("w", {"tensor"}),
        ("c", {"tensor"}), ("is_none", {"bool"}), ("count", {"int"}), ("pair", {"tuple"}), ("x.shape", {"tuple"}),
        ("x.dtype", {"dtype"}), ("x.T", {"tensor"}), ("x[0]", {"tensor"}), ("x.shape[0]", {"int"}), ("not x", {"bool"}),
        ("self.weight", {"param"}), ("self.depth", {"int"}), ("self.other", set()), ("torch.ones(3)", {"tensor"}),
        ("x.sum()", {"tensor"}), ("x.size()", {"tuple"}), ("None", {"none"}), ("[x]", {"list"}), ("-x", {"tensor"}),
    ],
)  # fmt: skip
def test_kinds_are_inferred(kinds: Kinds, expression: str, expected: set):
    assert kinds.of(ast.parse(expression, mode="eval").body) == expected


def test_adding_a_number_says_nothing_of_the_kind(kinds: Kinds):
    assert not kinds.names.get("unknown")


def test_a_tensor_or_none_is_a_tensor(kinds: Kinds):
    assert kinds.is_tensor(ast.parse("m", mode="eval").body)
    assert not kinds.is_tensor(ast.parse("n", mode="eval").body)
    assert not kinds.is_tensor(ast.parse("never_seen", mode="eval").body)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("torch.Tensor", {"tensor"}), ("Optional[torch.LongTensor]", {"tensor"}), ("torch.Tensor | None", {"tensor"}),
        ("int", {"int"}), ("tuple[torch.Tensor, int]", {"tuple"}), ("Config", set()),
        ("dict[int, tuple[torch.Tensor, torch.Tensor]] | None", {"dict"}),
        ("Union[int, torch.Tensor]", {"int", "tensor"}),
        ("'torch.Tensor'", {"tensor"}), ("'not a type'", set()), ("list", {"tuple"}), ("Config[torch.Tensor]", set()),
    ],
)  # fmt: skip
def test_annotations_promise_kinds(annotation: str, expected: set):
    found = annotation_kinds(ast.parse(annotation, mode="eval").body)
    assert found - {"none"} == expected


def _of(code: str, name: str, facts: dict, tmp_path: Path) -> Kinds:
    path = tmp_path / "unrun.py"
    path.write_text(code)
    context = Context(Project("unrun", str(path)), facts, f"unrun.{name}")
    file = context.project.files["unrun"]
    definition = Definition(name, file, file.definitions[name])
    return Kinds(context, definition, next(iter(definition.functions())))


def test_a_method_that_only_tensors_have_tells_a_tensor(tmp_path: Path):
    """Code that no run saw: names without annotation, results of layers, None wherever the run came by."""
    code = """
class Net:
    def f(self, ids, config, text, groups):
        shifted = ids.new_zeros(ids.shape)
        a, b = self.c_attn(shifted).split(4, dim=2)
        config.update(x=1)
        words = text.split(",")
        return groups
"""
    tree = {"": {"class": "unrun.Net"}, "c_attn": {"class": "torch.nn.modules.linear.Linear"}}
    kinds = _of(code, "Net", {"tree": tree}, tmp_path)
    assert all(kinds.names[n] == {"tensor"} for n in ("ids", "shifted", "a", "b"))
    assert not any(kinds.names.get(n) for n in ("config", "text", "groups", "words"))


def test_buffers_defaults_and_caches_tell_what_names_hold(tmp_path: Path):
    """Where no run came by: a buffer is a tensor, a default has its own kind, a cache is none whatever is annotated."""
    code = """
import torch

class Net:
    def f(self, buckets=32, cache: torch.Tensor = None, mask=None):
        ids = self.position_ids
        buckets //= 2
        return ids
"""
    facts = {"classes": {"unrun.Net": {"attributes": {"position_ids": ["constant"]}}}}
    kinds = _of(code, "Net", facts, tmp_path)
    assert kinds.names["ids"] == {"tensor"}
    assert kinds.names["buckets"] == {"int"}
    assert kinds.names["cache"] == {"cache"}
    assert not kinds.names.get("mask")
