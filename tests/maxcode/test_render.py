"""What a terminal shows of a record."""

import re

import pytest

from maxcode import render
from maxcode.records import empty_record


def test_verdict_table_names_every_check(capsys):
    record = empty_record("failed", "./model", "/tmp/out") | {
        "checks": [
            {"name": "exact", "status": "pass", "value": 4.2e-15, "limit": 1e-10, "scale": "real", "detail": ""},
            {"name": "float32", "status": "fail", "value": "inf", "limit": 1e-5, "scale": "", "detail": "logits"},
            {"name": "tpu", "status": "not_run", "value": None, "limit": None, "scale": "", "detail": "needs --tpu"},
        ],
        "gaps": [
            {"code": "CV101", "file": "m.py", "line": n, "torch_name": "torch.x", "reason": "no rule"} for n in range(9)
        ],
        "timings": {"gate": 61.0, "gate/exact": 55.0},
    }
    render.show_record(record)
    shown = capsys.readouterr().out
    for part in ("✓", "✗", "○", "exact", "4.2e-15", "1e-10", "inf", "failed", "./model", "/tmp/out", "1:01",
                 "gaps (9)", "m.py:0  CV101 torch.x no rule", "1 more in the report"):  # fmt: skip
        assert part in shown, part


@pytest.mark.parametrize("status", ["verified", "failed", "gaps", "traced", "not_shown", "error"])
def test_every_status_has_words(status, capsys):
    render.show_record(empty_record(status, "t"))
    assert status in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "weights", "following"),
    [
        ("verified", True, "README.md"),
        ("failed", True, "maxcode gate {}"),
        ("gaps", True, "CONTRIBUTING.md"),
        ("not_shown", True, "maxcode gate {}"),
        ("not_shown", False, "convert with weights"),
    ],
)
def test_a_verdict_says_what_to_do_next(status, weights, following, capsys, tmp_path):
    (tmp_path / "config.yml").write_text("")
    if weights:
        (tmp_path / "weights").mkdir()
    render.show_record(empty_record(status, "t", str(tmp_path)))
    shown = capsys.readouterr().out
    assert "next: " in shown
    # a narrow terminal breaks a long path over the lines of the box
    assert re.sub(r"\s", "", following.format(tmp_path)) in re.sub(r"[\s│]", "", shown)


def test_markup_in_texts_is_not_interpreted(capsys):
    check = {"name": "a", "status": "fail", "value": 1.0, "limit": 0.5, "scale": "", "detail": "[/nope] broken"}
    record = empty_record("gaps", "[bold]t[/bold]") | {"gaps": ["x[red]y"], "checks": [check]}
    render.show_record(record)
    shown = capsys.readouterr().out
    assert "[bold]t[/bold]" in shown
    assert "x[red]y" in shown
    assert "[/nope] broken" in shown


def test_plan_and_generation(capsys):
    row = {"name": "Net", "kind": "class", "file": "modeling.py", "lines": 12, "source": "m.Net", "handling": "convert"}
    plan = {
        "class": "m:Net", "config_class": None, "config": {}, "definitions": [row], "left_out": ["Other"],
        "support": {"rope.py": ""}, "lines": {"written": 12, "files": {}}, "risks": ["no space"],
        "estimate": {"seconds": 90.0, "seconds_without_gate": 30.0},
    }  # fmt: skip
    render.show_plan(empty_record("not_shown", "t") | {"plan": plan})
    shown = capsys.readouterr().out
    for words in ("Net", "m.Net", "rope.py", "Other", "no space", "no gaps; 12 lines", "30.0 s, 1:30 with the gate"):
        assert words in shown
    answer = {"text": "Paris [x].", "tokens": [1, 2], "seconds": {"decode": 0.5}}
    render.show_generation(empty_record("not_shown") | {"generation": answer})
    captured = capsys.readouterr()
    assert captured.out == "Paris [x].\n"
    assert "4.0 tokens/s" in captured.err
