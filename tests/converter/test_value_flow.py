"""Which parameters an expression's value comes from."""

import ast

import pytest

from maxcode.converter.calls import CallGraph
from maxcode.converter.context import Context, Definition
from maxcode.converter.source import Project
from maxcode.converter.value_flow import ValueFlow

SOURCE = """
def pair(grid, x):
    return grid * 2, x


def entry(grid, x, sizes, flags):
    a, b = grid + 1, x
    doubled, kept = pair(grid, x)
    table = []
    for n, m in zip(sizes, flags):
        table.append(n)
    rows = [r for r in x.shape]
    activation = layer(x)
    return a, b, doubled, kept, table, m, rows, activation
"""


@pytest.fixture
def flow(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    project = Project("net", str(path))
    file = project.file("net")
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "layer":
            node.seen = {"callee": ["module:net.Layer"]}
    context = Context(project, {"classes": {}, "tree": {}}, "net.entry")
    context.definitions = [Definition(n, file, node) for n, node in file.definitions.items()]
    return ValueFlow(CallGraph(context))


def sources(flow, name):
    function = next(f for f in flow.functions if f.node.name == "entry")
    found = flow.sources(function, [ast.parse(name, mode="eval").body])
    return found.names & set(function.parameters), found.is_activation


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("a", {"grid"}),
        ("b", {"x"}),
        ("doubled", {"grid", "x"}),
        ("table", {"sizes"}),
        ("m", {"flags"}),
        ("rows", set()),
        ("x.shape[0] + grid", {"grid"}),
    ],
)
def test_values_come_from_these_parameters(flow, name, parameters):
    assert sources(flow, name) == (parameters, False)


def test_a_modules_output_is_an_activation(flow):
    assert sources(flow, "activation") == (set(), True)
