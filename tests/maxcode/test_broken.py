"""A package that cannot be built: listed as a gap, in the source's class and the emitted line."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from maxcode import stages
from maxcode.broken import BrokenPackageError, as_gap
from maxcode.progress import Progress
from maxcode.stages import Run

MODELING = """
class Part:
    def __init__(self):
        self.act = {}["swoosh"]


class Model:
    @classmethod
    def abstract(cls, config):
        return Part()
"""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "modeling.py").write_text(MODELING)
    (folder / "__init__.py").write_text(
        "from .modeling import Model\n\n\nclass Config:\n    from_json = staticmethod(str)\n"
    )
    return tmp_path


def test_what_raised_and_where(package):
    command = [sys.executable, "-m", "maxcode.leaf_table", str(package), "pkg", "config.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "broken": "KeyError: 'swoosh'", "file": "modeling.py", "line": 4, "class": "Part"
    }  # fmt: skip


def test_the_stage_raises_it(package):
    run = Run(package, unsandboxed=True)
    with pytest.raises(BrokenPackageError, match=r"cannot be built \(KeyError: 'swoosh'\)"):
        stages.leaf_table(run, package, "pkg", package / "config.json", Progress(quiet=True))


def test_gap_points_at_the_sources_class(tmp_path):
    source = tmp_path / "net.py"
    source.write_text("import torch\n\n\nclass Part(torch.nn.Module):\n    pass\n")
    conversion = SimpleNamespace(classes={"Part": "net.Part"}, files={"modeling.py": MODELING})
    error = BrokenPackageError("KeyError: 'swoosh'", ("modeling.py", 4, "Part"))
    gap = as_gap(error, conversion, {"classes": {"net.Part": {"file": str(source)}}}, "pkg")
    assert (gap["file"], gap["line"], gap["torch_name"]) == (str(source), 4, "net.Part")
    assert (gap["jax_file"], gap["jax_line"]) == ("pkg/modeling.py", 4)
    assert [4, '        self.act = {}["swoosh"]'] in gap["jax_lines"]
    assert "swoosh" in gap["reason"]


def test_gap_of_code_that_is_no_class_points_at_the_package():
    conversion = SimpleNamespace(classes={}, files={})
    gap = as_gap(BrokenPackageError("ImportError: no", ("ops.py", 7, "")), conversion, {}, "pkg")
    assert (gap["file"], gap["line"], gap["torch_name"]) == ("pkg/ops.py", 7, "pkg")
