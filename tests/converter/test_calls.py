"""Which converted functions a call reaches."""

import ast
from pathlib import Path

import pytest

from maxcode.converter.calls import CallGraph
from maxcode.converter.context import Context, Definition
from maxcode.converter.source import Project

CODE = """
def helper(x, *, scale=1):
    return x


class Base:
    def __init__(self, width):
        pass

    def shared(self, x):
        return x


class Net(Base):
    @staticmethod
    def fixed(x):
        return x

    def forward(self, x):
        helper(x)
        self.shared(x)
        self.fixed(x)
        Base(3)
        self.missing(x)
        print(x)
        return x
"""


@pytest.fixture
def graph(tmp_path: Path) -> CallGraph:
    path = tmp_path / "net.py"
    path.write_text(CODE)
    context = Context(Project("net", str(path)), {}, "net.Net")
    file = context.project.files["net"]
    context.definitions = [Definition(n, file, node) for n, node in file.definitions.items()]
    return CallGraph(context)


def _targets(graph: CallGraph, text: str) -> list[tuple[str, str]]:
    net = graph.by_qualified["net.Net"]
    node = next(n for n in ast.walk(net.node) if isinstance(n, ast.Call) and ast.unparse(n) == text)
    return [t.key for t in graph.targets(node, net)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("helper(x)", [("net.helper", "helper")]), ("self.shared(x)", [("net.Base", "shared")]),
        ("self.fixed(x)", [("net.Net", "fixed")]), ("Base(3)", [("net.Base", "__init__")]), ("self.missing(x)", []),
        ("print(x)", []),
    ],
)  # fmt: skip
def test_calls_resolve_by_name(graph: CallGraph, call: str, expected: list):
    assert _targets(graph, call) == expected


def test_what_the_run_called_decides(graph: CallGraph):
    node = ast.parse("anything(x)", mode="eval").body
    node.seen = {"callee": ["module:net.Net"]}
    assert [t.key for t in graph.targets(node)] == [("net.Net", "forward")]
    node.seen = {"callee": ["torch.relu"]}
    assert graph.targets(node, graph.by_qualified["net.Net"]) == []


def test_parameters_and_binding(graph: CallGraph):
    functions = {f.key[1]: f for f in graph.functions()}
    assert functions["helper"].parameters == ["x", "scale"]
    assert (functions["shared"].is_method, functions["fixed"].is_method, functions["helper"].is_method) == (
        True,
        False,
        False,
    )
