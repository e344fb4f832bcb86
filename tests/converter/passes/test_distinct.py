"""Names that several files of a source share."""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.passes.distinct import ensures, tell_apart
from maxcode.converter.source import Project

PART = """
def scale(x):
    return {factor} * x


def turn(x):
    return scale(x) + 1


class Part:
    def forward(self, x):
        return turn(x)
"""
ENTRY = """
from modeling_part import Part


def scale(x):
    return 3 * x


def turn(x):
    return scale(x) + 1


class Net:
    def forward(self, x, turned=None):
        return Part().forward(x), turn(x)
"""


def told_apart(tmp_path, factor):
    for name, text in (("modeling_part", PART.format(factor=factor)), ("modeling_net", ENTRY)):
        (tmp_path / f"{name}.py").write_text(text)
    project = Project("modeling_net", str(tmp_path / "modeling_net.py"))
    context = Context(project, {"classes": {}, "tree": {}}, "modeling_net.Net")
    for module in ("modeling_part", "modeling_net"):
        file = project.file(module)
        context.definitions += [Definition(n, file, node) for n, node in file.definitions.items()]
    tell_apart(context)
    assert not [message for d in context.definitions for message in ensures(context, d)]
    text = "\n\n".join(ast.unparse(d.node) for d in context.definitions)
    space: dict = {}
    exec(text, space)
    return space


def test_different_ones_keep_apart(tmp_path):
    space = told_apart(tmp_path, 2)
    assert space["Net"]().forward(10) == (21, 31)
    assert {"part_scale", "part_turn", "scale", "turn"} <= set(space)


def test_equal_ones_are_kept_once(tmp_path):
    space = told_apart(tmp_path, 3)
    assert space["Net"]().forward(10) == (31, 31)
    assert "part_scale" not in space
    assert "part_turn" not in space
