"""Rates of measured rows, and when a row no longer holds."""

import pytest

from maxcode.converter import measured, registry
from maxcode.converter.rule import Rule


def row(agree, samples=10, left_out=None, **limits):
    return {"left_out": left_out, "samples": samples, "agree": agree, "limits": limits, "misses": []}


def test_rates_count_every_sample():
    rows = [row(10), row(9), row(8, wide=2), row(7, wide=3), row(0, samples=0), row(3, left_out="random")]
    found = measured.rates(rows)
    assert found == {"rate": 0.2, "rate_with_limits": 0.4, "count": 5, "agree": 1}


def test_a_limit_covers_a_fifth_at_most():
    assert measured.agrees_apart_from_limits(row(8, one=2))
    assert not measured.agrees_apart_from_limits(row(7, one=3))
    assert measured.agrees_apart_from_limits(row(7, one=2, other=1))
    assert not measured.agrees_apart_from_limits(row(7, one=2))  # one sample differs
    assert not measured.agrees_apart_from_limits(row(0, **{str(i): 2 for i in range(5)}))


def plus_one(input):
    return input + 1


def plus_two(input):
    return input + 2


def test_stamp_follows_the_code(monkeypatch):
    registry.load()
    stamps = []
    for function in (plus_one, plus_two):
        monkeypatch.setitem(registry.OPS, "torch.plus_something", [Rule(("torch.plus_something",), function)])
        stamps.append(measured.stamp(["torch.plus_something"]))
    assert stamps[0] != stamps[1]
    assert measured.stale({"op x": {"names": ["torch.plus_something"], "stamp": stamps[1]}}) == []
    assert measured.stale({"op x": {"names": ["torch.plus_something"], "stamp": stamps[0]}}) == ["op x"]


@pytest.mark.parametrize("name", ["torch.nn.functional.max_pool2d", "torch.nn.LSTM"])
def test_stamp_reaches_support_modules(name, monkeypatch):
    before = measured.stamp([name])
    monkeypatch.setattr(measured, "_module_text", lambda stem: f"text_of_{stem} = 0")
    measured._code_of.cache_clear()
    try:
        assert measured.stamp([name]) != before
    finally:
        measured._code_of.cache_clear()


def test_reading_results_that_are_not_there(tmp_path):
    assert measured.read(tmp_path / "none.json") == {"overridable": {}, "rows": {}}
