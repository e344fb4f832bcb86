"""Readers of syntax trees: what a block reads before it binds it."""

import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from maxcode.converter.nodes import assign, read_before_write, stored

_NAMES = "abc"
_name = st.sampled_from(_NAMES)
_test = st.sampled_from(["flag", "not flag"])


def _block(depth: int) -> st.SearchStrategy[list[str]]:
    plain = st.one_of(
        st.builds("{} = {} + 1".format, _name, _name),
        st.builds("{} = 1".format, _name),
        st.builds("{} += 1".format, _name),
        st.builds("{}, {} = 1, {}".format, _name, _name, _name),
        st.builds("d[{}] = {}".format, _name, _name),
    ).map(lambda line: [line])
    if not depth:
        return st.lists(plain, min_size=1, max_size=3).map(_joined)
    inner = _block(depth - 1)
    branch = st.builds(lambda c, x, y: [f"if {c}:", *_in(x), "else:", *_in(y)], _test, inner, inner)
    half = st.builds(lambda c, x: [f"if {c}:", *_in(x)], _test, inner)
    loop = st.builds(lambda n, x: [f"for {n} in range(k):", *_in(x)], _name, inner)
    return st.lists(st.one_of(plain, branch, half, loop), min_size=1, max_size=4).map(_joined)


def _joined(parts: list[list[str]]) -> list[str]:
    return [line for part in parts for line in part]


def _in(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Needs(dict):
    """A scope that notes reads of names that were never bound."""

    def __init__(self) -> None:
        super().__init__()
        self.early: set[str] = set()

    def __missing__(self, name: str) -> object:
        if name in _NAMES:
            self.early.add(name)
            return 1
        raise KeyError(name)


@settings(max_examples=400, deadline=None)
@given(_block(2))
def test_every_early_read_is_found(lines: list[str]):
    text = "\n".join(lines)
    found = read_before_write(ast.parse(text).body)
    for flag in (True, False):
        for count in (0, 1, 2):
            scope = _Needs()
            exec(compile(text, "<block>", "exec"), {"flag": flag, "k": count, "d": {}, "range": range}, scope)
            assert scope.early <= found, (text, flag, count)


def test_augmented_assignment_reads_its_target():
    assert read_before_write(ast.parse("x += 1").body) == {"x"}


def test_a_name_bound_in_one_branch_keeps_its_old_value():
    assert "x" in read_before_write(ast.parse("if flag:\n    x = 1").body)


def test_names_bound_first_are_not_early():
    assert "x" not in read_before_write(ast.parse("x = 1\ny = x").body)


def test_stored_leaves_comprehensions_out():
    body = ast.parse("x = [y for y in z]\ndef f():\n    w = 1\nfor i, (j, k) in q: pass").body
    assert stored(body) == ["x", "f", "i", "j", "k"]


def test_assign_unpacks_lists():
    assert ast.unparse(ast.fix_missing_locations(assign(["a", "b"], ast.Name("c", ast.Load())))) == "a, b = c"
