"""Emission says what the tree says, with every comment."""

import ast
import contextlib
import importlib.util
import inspect
import io
import itertools
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from maxcode.converter.emit import format_text, unparse
from maxcode.converter.source import SourceFile

_STANDARD = ("dataclasses", "textwrap", "heapq", "contextlib", "fractions", "statistics", "ast")


def _model_files() -> list[Path]:
    """About thirty modeling files, spread over the installed models by name."""
    folder = Path(importlib.util.find_spec("transformers").origin).parent / "models"
    files = sorted(folder.glob("*/modeling_*.py"))
    return list(itertools.islice(files, 0, None, max(1, len(files) // 30)))[:30]


def _standard_files() -> list[Path]:
    return [Path(inspect.getsourcefile(importlib.import_module(name))) for name in _STANDARD]


FILES = [*_standard_files(), *_model_files()]


def _comments(text: str) -> Counter:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(t.string.strip() for t in tokens if t.type == tokenize.COMMENT)


def _emitted(path: Path) -> tuple[SourceFile, str]:
    file = SourceFile("module", str(path))
    return file, unparse(file.tree.body)


def _is_same(left: ast.AST, right: ast.AST) -> bool:
    return ast.dump(left) == ast.dump(right)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_emitted_text_parses_to_the_same_tree(path: Path):
    file, text = _emitted(path)
    emitted = ast.parse(text)
    assert len(emitted.body) == len(file.tree.body)
    for before, after in zip(file.tree.body, emitted.body, strict=True):
        assert _is_same(before, after), f"{path.name}:{before.lineno}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_comment_is_kept(path: Path):
    file, text = _emitted(path)
    lost = _words(file.text) - _words(text)
    assert not lost, f"{path.name}: {sum(lost.values())} comments lost: {list(lost)[:5]}"


CASES = {
    "elif chain": "if a:  # first\n    x = 1\n# second\nelif b:\n    x = 2\n# third\nelse:\n    # inside\n    x = 3\n",
    "call over lines": "x = f(\n    a,  # about a\n    # about b\n    b,\n)  # end\n",
    "end of block": "def f():\n    x = 1\n    # last words\n\n\ny = 2\n# end of file\n",
    "decorated": "# above\n@d  # on the decorator\n# between\ndef f():  # on the head\n    # first\n    return 1  # on it\n",
    "try": "try:  # t\n    x = 1\nexcept E:  # e\n    # in e\n    pass\nelse:\n    # in else\n    y = 1\nfinally:\n    # in finally\n    z = 1\n",
    "only comments in else": "for i in x:\n    pass\nelse:\n    # nothing\n    pass\n",
    "match": "match x:\n    # one\n    case 1:  # it is one\n        # inside\n        y = 1\n    case _:\n        y = 2  # other\n",
    "class": "class A:  # a\n    # first\n    x: int = 1  # x\n\n    # before f\n    def f(self): ...  # f\n",
    "head over lines": "def f(\n    a,  # first\n    b,  # second\n):  # done\n    return a\n",
    "with": "with (\n    a as b,  # one\n    c,  # two\n):\n    # in\n    pass\n",
    "while": "while x:  # w\n    # in\n    pass\n",
    "nested function end": "def f():\n    if a:\n        return 1\n        # after return\n    # end of f\n",
}


@pytest.mark.parametrize("case", CASES)
def test_comments_stay_in_hard_places(case: str):
    source = CASES[case]
    file = SourceFile("module", "x.py", source)
    text = unparse(file.tree.body)
    assert _is_same(ast.parse(text), ast.parse(source))
    assert not _words(source) - _words(text), text


def _words(text: str) -> Counter:
    """Comments as single remarks: several of one statement may share a line."""
    return Counter(part.strip() for comment in _comments(text) for part in comment.split("#") if part.strip())


def test_numbers_stay_as_written():
    file = SourceFile("module", "x.py", "x = 1e-05\ny = 10_000.0\n")
    assert unparse(file.tree.body) == "x = 1e-05\ny = 10_000.0"


def test_tuples_stay_bare():
    file = SourceFile("module", "x.py", "def f():\n    a, b = c, d\n    return a, b\n")
    assert unparse(file.tree.body) == "def f():\n    a, b = c, d\n    return a, b"


def test_formatting_sorts_and_drops_imports():
    text = format_text("import sys\nimport os\nprint(os.name)\n")
    assert text == "import os\n\nprint(os.name)\n"


def test_invalid_text_is_refused_with_its_name():
    with pytest.raises(ValueError, match="broken.py"), contextlib.redirect_stderr(io.StringIO()):
        format_text("def f(:\n", "broken.py")
