"""A recorded run of the tiny fixture model, shared by the evaluator's tests."""

import importlib.util
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def load_twin():
    spec = importlib.util.spec_from_file_location("tiny_twin", HERE / "tiny_twin.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """A run folder with package/, source/ and oracle/ of the tiny model; treat it as read-only."""
    run = tmp_path_factory.mktemp("tiny_run")
    load_twin().record(run)
    (run / "package").mkdir()
    shutil.copytree(HERE / "fixtures/tinylm", run / "package/tinylm", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(run / "weights.json", run / "package/weights.json")
    return run
