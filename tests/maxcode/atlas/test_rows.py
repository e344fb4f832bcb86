"""Rows, causes, and what two runs differ in."""

import json

import pytest

from maxcode.atlas.diff import compare
from maxcode.atlas.page import ranked_causes, render_page
from maxcode.atlas.render import summary
from maxcode.atlas.rows import by_family, passed, read_rows
from maxcode.errors import MaxCodeError

GAP = {"code": "CV101", "file": "modeling_a.py", "line": 7, "torch_name": "torch.foo", "reason": "no rule"}
FAIL = {"name": "exact", "status": "fail", "detail": "error 3e-2 at [1]\nmore", "scale": "second configuration"}
NOT_RUN = {"name": "cache", "status": "not_run", "detail": "no room", "scale": "given"}


def test_a_gap_is_named_before_a_failed_check(row):
    found = row("a", status="gaps", gaps=[GAP], checks=[FAIL])
    assert found["cause"] == {
        "code": "CV101", "file": "modeling_a.py", "line": 7, "text": "torch.foo: no rule"
    }  # fmt: skip
    assert not passed(found)


def test_a_failed_check_is_named_with_where_the_sides_part(row):
    evidence = {"divergence": {"file": "modeling_a.py", "line": 9}}
    found = row("a", status="failed", checks=[NOT_RUN, FAIL], evidence=evidence)
    assert found["cause"] == {
        "code": "exact", "file": "modeling_a.py", "line": 9, "text": "exact: error 3e-2 at [1]"
    }  # fmt: skip


def test_what_was_not_run_or_traced_is_a_cause_too(row):
    assert row("a", status="not_shown", checks=[NOT_RUN])["cause"]["text"] == "cache: no room"
    traced = row("a", status="traced", checks=[], traced=[{"torch_name": "a.B", "reason": "from its graph"}])
    assert traced["cause"]["text"] == "a.B: from its graph"
    assert not passed(traced)


def test_passed_rows_have_no_cause(row):
    assert row("a")["cause"] is None
    assert passed(row("a"))


def test_the_last_row_of_an_entry_wins(tmp_path, row):
    lines = [row("a", status="failed", checks=[FAIL]), row("b"), row("a")]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"id": "cut')
    assert [passed(found) for found in read_rows(tmp_path).values()] == [True, True]
    (tmp_path / "results.jsonl").write_text("nonsense\n" + json.dumps(lines[0]) + "\n")
    with pytest.raises(MaxCodeError, match=r"results\.jsonl:1"):
        read_rows(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(MaxCodeError, match=r"no results\.jsonl"):
        read_rows(tmp_path)


def test_families_and_figures(row):
    rows = [row("a"), row("b", family="audio"), row("c", status="failed", checks=[FAIL])]
    assert by_family(rows) == {"encoder": (1, 2), "audio": (1, 1)}
    figures = summary(rows)
    assert (figures["entries"], figures["passed"], figures["median_seconds"]) == (3, 2, 2.0)


def test_causes_are_ranked_without_regard_to_figures(row):
    other = FAIL | {"detail": "error 9e-1 at [5]"}
    rows = [row("a", status="failed", checks=[FAIL]), row("b", status="failed", checks=[other])]
    rows += [row("c", status="gaps", gaps=[GAP]), row("d")]
    assert [len(cause.ids) for cause in ranked_causes(rows)] == [2, 1]


def test_the_page_holds_every_entry_and_asks_nothing_of_the_network(tmp_path, row):
    rows = [row("a"), row("b", status="gaps", gaps=[GAP | {"reason": "<script>"}])]
    page = render_page(rows, tmp_path, tmp_path)
    assert "1 of 2 architectures pass" in page
    assert "a:AModel" in page
    assert "&lt;script&gt;" in page
    assert "http" not in page


def test_a_comparison_says_what_was_gained_and_lost(row):
    bad = row("a", status="failed", checks=[FAIL])
    before = {"a": row("a"), "b": bad, "c": bad, "old": bad}
    after = {"a": bad, "b": row("a"), "c": row("a", status="gaps", gaps=[GAP]), "new": bad}
    found = compare(before, after)
    assert [item["id"] for item in found["lost"]] == ["a"]
    assert [item["id"] for item in found["gained"]] == ["b"]
    assert [item["id"] for item in found["changed"]] == ["c"]
    assert (found["only_before"], found["only_after"], found["common"]) == (["old"], ["new"], 3)
    assert found["passed"] == [1, 1]
