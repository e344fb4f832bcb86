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
from maxcode.converter.plumbing import DROPPED_COMMENTS
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
    dropped = {c for c in _words(file.text) if any(text in c.lower() for text in DROPPED_COMMENTS)}
    lost = _words(file.text) - _words(text) - Counter(dict.fromkeys(dropped, 10**6))
    assert not lost, f"{path.name}: {sum(lost.values())} comments lost: {list(lost)[:5]}"


CASES = {
    "elif chain": """
if a:  # first
    x = 1
# second
elif b:
    x = 2
# third
else:
    # inside
    x = 3
""",
    "call over lines": """
x = f(
    a,  # about a
    # about b
    b,
)  # end
""",
    "end of block": """
def f():
    x = 1
    # last words


y = 2
# end of file
""",
    "decorated": """
# above
@d  # on the decorator
# between
def f():  # on the head
    # first
    return 1  # on it
""",
    "try": """
try:  # t
    x = 1
except E:  # e
    # in e
    pass
else:
    # in else
    y = 1
finally:
    # in finally
    z = 1
""",
    "only comments in else": """
for i in x:
    pass
else:
    # nothing
    pass
""",
    "match": """
match x:
    # one
    case 1:  # it is one
        # inside
        y = 1
    case _:
        y = 2  # other
""",
    "class": """
class A:  # a
    # first
    x: int = 1  # x

    # before f
    def f(self): ...  # f
""",
    "head over lines": """
def f(
    a,  # first
    b,  # second
):  # done
    return a
""",
    "with": """
with (
    a as b,  # one
    c,  # two
):
    # in
    pass
""",
    "while": """
while x:  # w
    # in
    pass
""",
    "nested function end": """
def f():
    if a:
        return 1
        # after return
    # end of f
""",
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
