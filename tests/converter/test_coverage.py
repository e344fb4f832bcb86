"""The coverage page is generated from the rules and up to date."""

import json

from maxcode.converter import coverage


def test_page_is_current():
    assert coverage.PAGE.read_text() == coverage.page(), "run `python -m maxcode.converter.coverage`"


def test_summary_is_json_with_every_layer_weight():
    record = json.loads(json.dumps(coverage.summary()))
    linear = next(row for row in record["rows"] if row["name"] == "torch.nn.Linear")
    assert linear["weights"]["weight"] == ["kernel", "o i -> i o"]
    assert record["counts"]["op"] == sum(row["kind"] == "op" for row in record["rows"])


def test_limits_are_listed():
    row = next(row for row in coverage.rows() if row.name == "torch.nn.functional.one_hot")
    assert any("num_classes" in reason for reason in row.limits)
