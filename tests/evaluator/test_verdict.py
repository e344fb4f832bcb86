import json
from xml.etree import ElementTree

import pytest

from maxcode.evaluator import junit
from maxcode.evaluator.verdict import EXIT, Check, Verdict, decide

PASS, FAIL = Check("exact", "pass", 1e-15, 1e-10), Check("cache", "fail", float("inf"), 1e-10, detail="a < b & c")
NOT_RUN, TPU, NOT_APPLICABLE = Check("long", "not_run"), Check("tpu", "not_run"), Check("padding", "n/a", detail="why")


@pytest.mark.parametrize(
    ("checks", "gaps", "traced", "status"),
    [
        ([PASS, TPU, NOT_APPLICABLE], [], [], "verified"),
        ([PASS, FAIL], [], [], "failed"),
        ([PASS, FAIL], ["gap"], [], "failed"),
        ([PASS], ["gap"], ["part"], "gaps"),
        ([PASS], [], ["part"], "traced"),
        ([PASS, NOT_RUN], [], [], "not_shown"),
        ([NOT_APPLICABLE, TPU], [], [], "not_shown"),
        ([], [], [], "not_shown"),
    ],
)
def test_status_follows_from_checks_gaps_and_traced_parts(checks, gaps, traced, status):
    assert decide(checks, gaps, traced) == status


def test_exit_statuses_are_those_of_the_contract():
    assert EXIT == {"verified": 0, "failed": 1, "gaps": 3, "traced": 3, "not_shown": 3, "error": 4}


@pytest.mark.parametrize(("value", "status"), [(1e-10, "pass"), (1.1e-10, "fail"), (float("nan"), "fail")])
def test_a_check_passes_up_to_its_limit_and_never_on_nan(value, status):
    assert Check.of("exact", value, 1e-10).status == status


def test_verdict_survives_json_with_infinite_figures(tmp_path):
    verdict = Verdict("failed", "t", "out", (PASS, FAIL), timings={"exact": 1.5}, versions={"jax": "0"})
    verdict.save(tmp_path / "verdict.json")
    json.loads((tmp_path / "verdict.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert Verdict.load(tmp_path / "verdict.json") == verdict


def test_verdict_refuses_unknown_fields():
    with pytest.raises(ValueError, match="colour"):
        Verdict.from_json({"status": "verified", "colour": "green"})


def test_junit_counts_and_escapes():
    suite = ElementTree.fromstring(junit.to_xml(Verdict("failed", "t", checks=(PASS, FAIL, NOT_APPLICABLE, TPU))))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "2")
    assert "a < b & c" in suite.find("testcase/failure").text
