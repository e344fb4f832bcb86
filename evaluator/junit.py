"""A verdict as JUnit XML, the form that CI systems show."""

from xml.etree import ElementTree

from maxcode.evaluator.verdict import Check, Verdict


def to_xml(verdict: Verdict) -> str:
    """One test case per check: a failed check is a failure, one that does not apply or was not run is skipped."""
    count = {status: sum(c.status == status for c in verdict.checks) for status in ("fail", "n/a", "not_run")}
    suite = ElementTree.Element(
        "testsuite",
        name=f"maxcode {verdict.target}".strip(),
        tests=str(len(verdict.checks)),
        failures=str(count["fail"]),
        errors=str(int(verdict.status == "error")),
        skipped=str(count["n/a"] + count["not_run"]),
    )
    for check in verdict.checks:
        suite.append(_case(check, verdict.timings.get(check.name)))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(check: Check, seconds: float | None) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"maxcode.{check.scale or 'gate'}", name=check.name)
    if seconds is not None:
        case.set("time", f"{seconds:.3f}")
    figures = f"value {check.value}, limit {check.limit}" if check.limit is not None else ""
    text = "\n".join(part for part in (figures, _printable(check.detail)) if part)
    if check.status == "fail":
        ElementTree.SubElement(case, "failure", message=figures or "failed").text = text
    elif check.status != "pass":
        ElementTree.SubElement(case, "skipped", message=f"{check.status}: {_printable(check.detail)}")
    elif text:
        ElementTree.SubElement(case, "system-out").text = text
    return case


def _printable(text: str) -> str:
    # Control characters are no XML, escaped or not.
    return "".join(c for c in text if c in "\n\t" or ord(c) >= 32)
