"""Reading a project: names, files and comments."""

import ast
from pathlib import Path

import pytest

from maxcode.converter.source import Project, SourceFile

FILE = '''# Copyright 2030 The Authors
#
# Licensed under terms.
"""Doc."""
import torch
import torch.nn.functional as F
from torch import nn as layers
from . import sibling
from .sibling import helper as aid
from ..up import thing

try:
    from fast import kernel
except ImportError:
    kernel = None

LIMIT: int = 3
A = B = 2

if LIMIT:
    def chosen():
        pass


class Net(layers.Module):
    pass
'''


@pytest.fixture
def file() -> SourceFile:
    return SourceFile("pkg.sub.model", "pkg/sub/model.py", FILE)


def test_imports_are_qualified(file: SourceFile):
    assert file.imports == {
        "torch": "torch", "F": "torch.nn.functional", "layers": "torch.nn", "sibling": "pkg.sub.sibling",
        "aid": "pkg.sub.sibling.helper", "thing": "pkg.up.thing", "kernel": "fast.kernel",
    }  # fmt: skip


def test_relative_imports_of_a_package_file_start_in_it():
    file = SourceFile("pkg.sub", "pkg/sub/__init__.py", "from .inner import x\nfrom ..up import y")
    assert file.imports == {"x": "pkg.sub.inner.x", "y": "pkg.up.y"}


def test_definitions_reach_below_guards(file: SourceFile):
    assert set(file.definitions) == {"kernel", "LIMIT", "A", "B", "chosen", "Net"}


def test_names_are_qualified_by_definition_then_import(file: SourceFile):
    assert file.qualify("Net") == "pkg.sub.model.Net"
    assert file.qualify("F") == "torch.nn.functional"
    assert file.qualify("print") is None


def test_license_header_is_kept_without_a_banner():
    file = SourceFile("m", "m.py", "# Generated file\n\n" + FILE)
    assert file.license_header.startswith("# Copyright 2030")
    assert file.license_header.endswith("# Licensed under terms.")
    assert SourceFile("m", "m.py", "x = 1").license_header == ""


def test_floats_remember_their_text():
    constant = SourceFile("m", "m.py", "x = 1e-5").tree.body[0].value
    assert constant.text == "1e-5"


def test_comments_belong_to_their_statements():
    tree = SourceFile("m", "m.py", "# above\nx = 1  # beside\n\n# next\ny = 2\n# below\n").tree
    first, second = tree.body
    assert (first.leading, first.trailing, first.spaced) == (["# above"], "# beside", False)
    assert (second.leading, second.spaced, second.following) == (["# next"], True, ["# below"])


def test_comments_on_dropped_plumbing_go_with_it():
    call = SourceFile("m", "m.py", "f(\n    x,  # as a positional argument for gradient checkpointing\n)\n").tree.body[
        0
    ]
    assert call.trailing == ""


def test_hash_signs_in_strings_are_no_comments():
    assert SourceFile("m", "m.py", 'x = "# no"\n').tree.body[0].trailing == ""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "pkg" / "sub"
    folder.mkdir(parents=True)
    for path, text in {
        "pkg/__init__.py": "from .sub.model import Net", "pkg/sub/__init__.py": "",
        "pkg/sub/helper.py": "def aid(): pass",
        "pkg/sub/model.py": "from .helper import aid\nclass Net: pass", "pkg/loop.py": "from .loop import missing",
    }.items():  # fmt: skip
        (tmp_path / path).write_text(text)
    return Project("pkg.sub.model", str(folder / "model.py"))


def test_lookup_follows_imports_and_reexports(project: Project):
    file, node = project.lookup("pkg.sub.model.aid")
    assert (file.module, type(node)) == ("pkg.sub.helper", ast.FunctionDef)
    assert project.lookup("pkg.Net")[0].module == "pkg.sub.model"


def test_lookup_of_what_is_not_there_is_none(project: Project):
    assert project.lookup("pkg.sub.model.Other") is None
    assert project.lookup("elsewhere.Net") is None
    assert project.lookup("pkg.loop.missing") is None


def test_framework_modules_are_found_from_models_outside_of_it(project: Project):
    file, node = project.lookup("transformers.modeling_outputs.CausalLMOutput")
    assert (file.module, node.name) == ("transformers.modeling_outputs", "CausalLMOutput")
    assert project.lookup("torch.nn.Linear") is None
