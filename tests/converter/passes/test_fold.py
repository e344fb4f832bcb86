"""Folding never changes what an expression or function means, and does fold what is constant."""

import ast
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxcode.converter.passes.fold import Fold

_NAMES = ("a", "b")
_VALUES = (None, True, False, 0, 1, "x", [])

_leaves = st.sampled_from(["a", "b", "None", "True", "False", "0", "1", "'x'", "{}"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    comparison = st.sampled_from(["is", "is not", "==", "!="])
    return st.one_of(
        st.builds("(not {})".format, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("({} and {} and {})".format, inner, inner, inner),
        st.builds("({} {} {})".format, inner, comparison, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    )


expressions = st.recursive(_leaves, _grown, max_leaves=7)


def _folded(text: str) -> str:
    tree = ast.parse(text, mode="eval")
    for _ in range(2):
        tree.body = Fold().visit(tree.body)
    return ast.unparse(ast.fix_missing_locations(tree))


def _value(text: str, environment: dict) -> object:
    return eval(compile(text, "<folded>", "eval"), {}, environment)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=600, deadline=None)
@given(expressions)
def test_folding_keeps_the_truth_of_expressions(text: str):
    folded = _folded(text)
    for values in itertools.product(_VALUES, repeat=len(_NAMES)):
        environment = dict(zip(_NAMES, values, strict=True))
        assert bool(_value(text, environment)) == bool(_value(folded, environment)), (text, folded, environment)


# A function of nested branches that records which statements ran.
_conditions = st.sampled_from(["a", "not a", "None", "True", "a is None", "b is not None", "a and b", "False or b"])


def _statements(depth: int) -> st.SearchStrategy[list]:
    mark = st.integers(0, 9).map(lambda n: [f"out.append({n})"])
    if not depth:
        return st.one_of(mark, st.just(["pass"]), st.just(["return out"]))
    inner = _statements(depth - 1)
    branch = st.builds(lambda c, x, y: [f"if {c}:", *_in(x), "else:", *_in(y)], _conditions, inner, inner)
    loop = st.builds(lambda x: ["for i in range(2):", *_in(x)], inner)
    never = st.builds(lambda x: ["while False:", *_in(x)], inner)
    return st.lists(st.one_of(mark, branch, loop, never, inner), min_size=1, max_size=3).map(_joined)


def _joined(parts: list[list[str]]) -> list[str]:
    return [line for part in parts for line in part]


def _in(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


@settings(max_examples=300, deadline=None)
@given(_statements(2))
def test_folding_keeps_what_functions_do(lines: list[str]):
    text = "\n".join(["def f(a, b):", "    out = []", *_in(lines), "    return out"])
    tree = ast.parse(text)
    folded = ast.fix_missing_locations(Fold().visit(ast.parse(text)))
    for a, b in itertools.product((None, True, False, 0, 3), repeat=2):
        assert _run(tree, a, b) == _run(folded, a, b), (text, ast.unparse(folded), a, b)


def _run(tree: ast.Module, a: object, b: object) -> object:
    scope: dict = {}
    exec(compile(tree, "<folded>", "exec"), scope)
    return scope["f"](a, b)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x and True", "x"),
        ("x or False", "x"),
        ("False and x()", "False"),
        ("not (x is None)", "x is not None"),
        ("y if None is None else z", "y"),
        ("(x is not None) is True", "x is not None"),
        ("x is None and x is not None", "False"),
        ("'eager' == 'eager'", "True"),
    ],
)
def test_constant_parts_fall_away(before: str, after: str):
    assert _folded(before) == after


@pytest.mark.parametrize("text", ["x and y", "f() or g()", "x if y else z", "x == y", "a < b < c"])
def test_what_is_unknown_stays(text: str):
    assert _folded(text) == text
