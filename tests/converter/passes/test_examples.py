"""Every pass does what its EXAMPLES say, leaves its own result alone, and what it ensures holds."""

import ast
import re
from pathlib import Path

import pytest

from maxcode.converter import pipeline
from maxcode.converter.context import Context, ConversionError, Definition
from maxcode.converter.emit import format_text, unparse
from maxcode.converter.example import Example
from maxcode.converter.passing import Pass
from maxcode.converter.source import Project

_HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
_KIND = re.compile(r"#\s*([\w.\[\]]+): (\w+)(?:\[(\w+)\])?\s*$", re.MULTILINE)
CASES = [
    pytest.param(p, e, id=f"{p.name}-{i}")
    for p in pipeline.PASSES
    for i, e in enumerate(getattr(p.module, "EXAMPLES", ()))
]


def project(code: str, folder: Path, attributes: dict | None = None) -> Context:
    """A conversion of one file with stub facts: kinds from the comments `# x: tensor` of the code."""
    path = folder / "example.py"
    path.write_text(_HEAD + code + "\n")
    classes = {f"example.{c}": {"attributes": a, "mro": []} for c, a in (attributes or {}).items()}
    context = Context(Project("example", str(path)), {"classes": classes}, "example.Net")
    file = context.project.files["example"]
    kinds = {name: _fact(kind, detail) for name, kind, detail in _KIND.findall(code)}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and ast.unparse(node) in kinds:
            node.seen = dict(kinds[ast.unparse(node)])
    context.definitions = [Definition(name, file, node) for name, node in file.definitions.items()]
    return context


def _fact(kind: str, detail: str) -> dict:
    fact: dict = {"kinds": [kind]}
    if detail.isdigit():
        fact["ndims"] = [int(detail)]
    elif detail == "bool":
        fact |= {"dtypes": ["bool"], "ndims": [2]}
    return fact


def text(context: Context) -> str:
    """The definitions as they stand, formatted."""
    return "\n\n\n".join(unparse([d.node]) for d in context.definitions)


def _formatted(code: str) -> str:
    """Formatted, without blank lines, whose number is not what examples are about."""
    return "\n".join(line for line in format_text(code).splitlines() if line.strip())


@pytest.mark.parametrize(("step", "example"), CASES)
def test_example(step: Pass, example: Example, tmp_path: Path):
    before, after = example.texts()
    context = project(before, tmp_path, example.attributes)
    step.run(context)
    assert _formatted(text(context)) == _formatted(after)
    assert {g.code for g in context.gaps} == ({example.gap} if example.gap else set()), context.gaps


@pytest.mark.parametrize(("step", "example"), CASES)
def test_ensures_holds_after_its_examples(step: Pass, example: Example, tmp_path: Path):
    ensures = getattr(step.module, "ensures", None)
    context = project(example.texts()[0], tmp_path, example.attributes)
    step.run(context)
    if ensures is not None and not context.gaps:
        assert [m for d in context.definitions for m in ensures(context, d)] == []


BROKEN = {
    "kwargs": "def f(x, **kwargs):\n    return g(x, **kwargs)",
    "inplace": "def f(x):\n    # x: tensor\n    x[0] = 1.0\n    x.add_(1)\n    return x",
    "ops": "def f(x):\n    return torch.abs(x)",
    "signature": "class Net(nn.Module):\n    def forward(self, x):\n        return x",
}


@pytest.mark.parametrize("name", BROKEN)
def test_ensures_finds_what_it_forbids(name: str, tmp_path: Path):
    step = next(p for p in pipeline.PASSES if p.name == name)
    context = project(BROKEN[name], tmp_path)
    messages = [m for d in context.definitions for m in step.module.ensures(context, d)]
    assert messages
    assert all("example.py:" in m for m in messages)


def test_a_later_pass_that_breaks_an_earlier_one_is_named(tmp_path: Path):
    step = next(p for p in pipeline.PASSES if p.name == "kwargs")

    def breaks(context: Context) -> None:
        context.definitions[0].node.args.kwarg = ast.arg("rest")

    later = Pass(pipeline.tidy, breaks, "to break")
    context = project("def f(x):\n    return x", tmp_path)
    with pytest.raises(ConversionError, match=r"after pass 'tidy', what 'kwargs' ensures.*example\.py:5.*kwargs, tidy"):
        pipeline.run_passes(context, (step, later))


def test_every_pass_says_what_it_does_and_why_it_stands_there():
    for step in pipeline.PASSES:
        assert step.module.__doc__, step.name
        assert step.reason.strip(), step.name
    assert len({p.name for p in pipeline.PASSES}) == len(pipeline.PASSES)


def test_every_file_of_a_pass_is_in_the_order_or_helps_one():
    folder = Path(pipeline.tidy.__file__).parent
    helpers = {"alias_calls", "branch_parts", "keywords", "memory", "needs", "storages", "tensor_tests"}
    collecting = {"plumbing", "rope"}  # run by `collect`, since they decide what is reached
    assert {p.stem for p in folder.glob("*.py")} == {p.name for p in pipeline.PASSES} | helpers | collecting
