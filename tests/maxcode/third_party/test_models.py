"""The list of third-party models, and the table of their results."""

from pathlib import Path

import pytest

from maxcode.third_party.models import Model, read_models
from maxcode.third_party.table import table

SITE = Path("/site")


def _row(model: str, status: str, **more: object) -> dict:
    row = {
        "package": "p",
        "version": "1.0",
        "model": model,
        "status": status,
        "cause": None,
        "checks": [],
        "seconds": 3,
    }
    return row | more


def test_the_list_has_many_packages_and_no_model_twice():
    models = read_models()
    assert len({m.package for m in models}) >= 30
    assert len({m.model for m in models}) == len(models)
    assert len({m.slug for m in models}) == len(models)


def test_a_part_of_the_name_chooses_models():
    assert all("vit_pytorch" in m.model for m in read_models(only=["vit_pytorch"]))


@pytest.mark.parametrize(
    ("model", "target"), [("a.b:C", "a.b:C"), ("a/b.py:C", "/site/a/b.py:C")], ids=["module", "file"]
)
def test_a_file_is_named_below_the_site_folder(model: str, target: str):
    assert Model("a", model, {}, []).target(SITE) == target


def test_the_table_counts_and_says_why():
    cause = {"code": "CV101", "file": "/site/p/m.py", "line": 7, "text": "torch.x | no rule"}
    checks = [{"name": "exact", "status": "pass", "value": 2e-16}]
    text = table([_row("p.m:B", "gaps", cause=cause), _row("p.m:A", "verified", checks=checks)], SITE)
    assert "2 models of 1 packages: 1 gaps, 1 verified." in text
    assert "| p | 1.0 | `p.m:A` | verified | 2e-16 | 3 |  |" in text
    assert "| CV101 p/m.py:7 torch.x \\| no rule |" in text
    assert text.index("p.m:A") < text.index("p.m:B")
