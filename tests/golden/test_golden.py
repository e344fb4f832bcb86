"""Golden models: the converted text is what is stored beside the source, and computes what the source computes.

`pytest tests/golden --update-golden` rewrites `jax_model.py`.
"""

from pathlib import Path

import jax
import pytest

from tests.golden.harness import both_outputs, convert_text, error_of

CASES = sorted(path.parent for path in Path(__file__).parent.glob("*/torch_model.py"))


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def _stored(text: str, module: str) -> str:
    """The text without the number that the harness gives each source."""
    return text.replace(module, "torch_model")


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_golden_model(case: Path, tmp_path: Path, update_golden: bool):
    converted = convert_text((case / "torch_model.py").read_text(), tmp_path)
    assert not converted.conversion.gaps
    text = _stored(converted.modeling, converted.target["module"])
    if update_golden:
        (case / "jax_model.py").write_text(text)
    for name, theirs, ours in both_outputs(converted):
        assert theirs.dtype == ours.dtype, name
        assert error_of(theirs, ours) <= 1e-12, name
    for name, theirs, ours in both_outputs(converted, jit=True):
        assert error_of(theirs, ours) <= 1e-12, f"{name}, compiled"
    assert text == (case / "jax_model.py").read_text(), "review the change, then: pytest tests/golden --update-golden"
