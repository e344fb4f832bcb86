"""Entries and rows that need no model."""

import json

import pytest

from maxcode.atlas.entries import Entry
from maxcode.atlas.rows import row_of


def entry_line(name: str, **fields) -> dict:
    known = {
        "id": f"{name}:{name.title()}Model", "model_type": name, "family": "encoder", "class": f"{name.title()}Model",
        "module": f"transformers.models.{name}.modeling_{name}", "config_class": f"{name.title()}Config",
        "config_module": f"transformers.models.{name}.configuration_{name}", "config": {"hidden_size": 8},
        "inputs": {"input_ids": {"kind": "ids", "dtype": "int64", "shape": [2, 4], "low": 1, "high": 9}},
    }  # fmt: skip
    return known | fields


@pytest.fixture
def atlas_file(tmp_path):
    """`atlas_file("a", "b")`: a file with an entry of each name."""

    def write(*names: str, **fields):
        path = tmp_path / "atlas.jsonl"
        path.write_text("".join(json.dumps(entry_line(name, **fields)) + "\n" for name in names))
        return path

    return write


@pytest.fixture
def row():
    """`row("a")`: a row that passed; keywords change the record that it is made from."""

    def make(name: str, family: str = "encoder", status: str = "verified", **record):
        entry = Entry(f"{name}:{name.title()}Model", entry_line(name, family=family))
        known = {"status": status, "checks": [{"name": "exact", "status": "pass", "detail": "", "scale": "given"}]}
        return row_of(entry, known | record, 2.0, None)

    return make
