"""The files of a package, as a whole."""

import ast
from pathlib import Path

import pytest

from tests.golden.harness import Converted, convert_text

SOURCE = '''# Copyright 2030 The Authors
"""A file."""
import torch
from torch import nn


class Net(nn.Module):
    """Does a thing."""

    def __init__(self, width=3):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        return self.proj(x).to(torch.float32)


def get_inputs():
    return [torch.ones(2, 3)]
'''


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return convert_text(SOURCE, tmp_path_factory.mktemp("assemble"))


def test_the_package_has_its_files(converted: Converted):
    assert {"__init__.py", "config.py", "modeling.py", "pretrained.py", "sharding.py"} <= set(
        converted.conversion.files
    )
    assert "outputs.py" not in converted.conversion.files, "no record is used"


def test_names_are_exported(converted: Converted):
    tree = ast.parse(converted.conversion.files["__init__.py"])
    names = {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert names == {"Config", "Model", "Net", "NetConfig"}


def test_the_head_names_licence_and_origin(converted: Converted):
    text = converted.modeling
    assert text.startswith("# Copyright 2030 The Authors\n")
    assert ast.get_docstring(ast.parse(text)).startswith("Net in JAX, converted by MaxCode from ")


def test_float32_is_a_name_of_the_module(converted: Converted):
    assert "float32 = jnp.float32" in converted.modeling
    assert "astype(float32)" in converted.modeling


def test_every_file_is_valid_and_imports_only_siblings_and_jax(converted: Converted):
    files = converted.conversion.files
    for name, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level:
                modules = [node.module] if node.module else [a.name for a in node.names]
                assert {f"{m}.py" for m in modules} <= set(files), f"{name}: {ast.unparse(node)}"


def test_source_is_left_as_it_was(converted: Converted):
    assert Path(converted.target["path"]).read_text() == SOURCE
