"""Measuring in worker processes: rows are kept, fresh ones are not measured again, a lost process is a row."""

import json

import pytest

from maxcode.coverage import runner, store
from maxcode.coverage.calls import as_call, entries, samples, spellings
from maxcode.coverage.denominator import left_out


@pytest.mark.slow
def test_rows_are_measured_once(tmp_path):
    options = runner.RunOptions(results=tmp_path / "rows.json", cache=tmp_path / "cache")
    seen = []
    report = lambda key, row, done, total: seen.append((key, done, total))  # noqa: E731
    rows = runner.run(["op sin", "module ReLU"], options, report)
    assert rows["op sin"]["agree"] == rows["op sin"]["samples"] > 0
    assert sorted(key for key, _, _ in seen) == ["module ReLU", "op sin"]
    assert runner.run(["op sin", "module ReLU"], options, report) == rows
    assert len(seen) == 2
    assert store.load(options.results) == rows


def test_a_lost_process_is_a_miss(tmp_path, monkeypatch):
    monkeypatch.setattr(runner.sys, "executable", "/bin/false")
    found = dict(runner._measure(["op sin", "op cos"], tmp_path))
    assert list(found) == ["op sin", "op cos"]
    assert all(row["agree"] == 0 and "process ended" in row["misses"][0][0] for row in found.values())


def test_results_are_one_row_a_line(tmp_path):
    rows = {"op b": {"left_out": None, "samples": 1}, "op a": {"left_out": "random", "samples": 2}}
    store.write(rows, {"torch": ["sin"]}, tmp_path / "rows.json")
    text = (tmp_path / "rows.json").read_text()
    assert [line[:8] for line in text.splitlines()[2:4]] == ['  "op a"', '  "op b"']
    assert json.loads(text)["rows"] == rows


@pytest.mark.parametrize(
    ("name", "reason"),
    [("eq", "not differentiable"), ("sparse.mm", "sparse"), ("torch._scaled_mm", "quantised"), ("sin", None)],
)
def test_what_counts(name, reason):
    assert left_out(entries()[name]) == reason


def test_spellings_are_functions_and_methods():
    assert {"torch.abs", "torch.Tensor.abs", "torch.absolute"} <= set(spellings(entries()["abs"][0]))
    assert spellings(entries()["half"][0]) == ["torch.Tensor.half"]  # torch.half is a dtype


def test_arguments_that_a_table_orders_otherwise_are_put_right():
    info = entries()["where"][0]
    call = as_call("torch.where", info, samples(info)[0])
    assert str(call.args[0].dtype) == "torch.bool"
