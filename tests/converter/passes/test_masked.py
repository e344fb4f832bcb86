"""Updates of rows that a mask selects, written over the whole array: the same values in torch's own terms."""

import ast

import pytest
import torch

from maxcode.converter.passes.masked import write_whole

FACTS = {
    "x": {"kinds": ["tensor"], "ndims": [3]},
    "m": {"kinds": ["tensor"], "ndims": [2], "dtypes": ["bool"]},
    "v": {"kinds": ["tensor"], "ndims": [2]},
    "w": {"kinds": ["tensor"], "ndims": [1]},
    "x[m]": {"kinds": ["tensor"], "ndims": [2]},
    "x[m, :]": {"kinds": ["tensor"], "ndims": [2]},
}
CHANGED = {
    "by a name": "rows = x[m, :] + v\nx[m, :] = rows",
    "at once": "x[m] = x[m] * v - 1",
    "the other way round": "x[m, :] = v - x[m, :]",
    "a copy first": "rows = x[m, :].clone() + v\nx[m, :] = rows",
    "one row for all": "x[m] = x[m] + w",
    "in place": "x[m] += v",
}
LEFT = {
    "rows of another source": "x[m] = v",
    "a quotient": "x[m] = x[m] / v",
    "rows that are read again": "rows = x[m, :] + v\nx[m, :] = rows\nx = x + rows.sum()",
    "an array that changes in between": "rows = x[m, :] + v\nx = x * 2\nx[m, :] = rows",
}


def written(body):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    function = ast.parse(f"def f(x, m, v, w):\n{lines}\n    return x").body[0]
    for node in ast.walk(function):
        if isinstance(node, ast.expr) and ast.unparse(node) in FACTS:
            node.seen = dict(FACTS[ast.unparse(node)])
    before = ast.unparse(function)
    write_whole(None, None, function)
    return before, ast.unparse(ast.fix_missing_locations(function))


def run(text):
    space = {"torch": torch}
    exec(text, space)
    torch.manual_seed(0)
    m = torch.tensor([[True, False, True], [False, False, True]])
    return space["f"](torch.randn(2, 3, 4), m, torch.randn(3, 4), torch.randn(4))


@pytest.mark.parametrize("body", CHANGED.values(), ids=CHANGED.keys())
def test_values_stay(body):
    before, after = written(body)
    assert "[m" not in after
    torch.testing.assert_close(run(after), run(before))


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT.keys())
def test_others_are_left(body):
    before, after = written(body)
    assert after == before
