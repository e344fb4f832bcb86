"""Instrumented code behaves as it does without, and what it notes stands at the right positions."""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from maxcode.evaluator.oracle.instrument import InstrumentingFinder, Recorder, kind_of

# Each function returns what it computed; together they hold the constructs that wrapping could break.
SOURCE = '''
"""Module docstring."""
from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import nn

LIMIT = 3


def doubled(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return inner


class Base(nn.Module):
    scale = 2

    def __init__(self, width: int = LIMIT):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self._offset = 1.0

    @property
    def offset(self):
        return self._offset

    @offset.setter
    def offset(self, value):
        self._offset = value

    @staticmethod
    def shift(x, by=1):
        return x + by

    @classmethod
    def named(cls):
        return cls.__name__

    def forward(self, x):
        return self.shift(self.linear(x), by=self.offset)


class Derived(Base):
    def __init__(self, width=LIMIT):
        super().__init__(width)
        self.offset = 4.0

    def forward(self, x, *rest, flag: bool = True, **kwargs):
        y = super().forward(x)
        y = super(Derived, self).forward(y)
        if (n := len(rest)) > 0 and 0 < n < 5:
            y = y * n
        return y if flag else -y, {**kwargs, "n": n}


@dataclass
class Point:
    x: int
    y: int = 2

    def __post_init__(self):
        self.total = self.x + self.y


def comprehensions(values):
    squares = [v * v for v in values if v % 2]
    table = {str(k): v for k, v in enumerate(squares)}
    unique = {v % 3 for v in values}
    return squares, table, unique, sum(v for row in [values, squares] for v in row)


def closures():
    fns = [lambda x, i=i: x + i for i in range(3)]
    count = 0

    def bump():
        nonlocal count
        count += 1
        return count

    bump()
    return [f(10) for f in fns], bump(), sorted([3, 1, 2], key=lambda v: -v)


def generator(n):
    received = yield "start"
    for i in range(n):
        received = yield (i, received)
    return "done"


def delegating(n):
    result = yield from generator(n)
    yield result


def run_generator():
    g = delegating(2)
    return [next(g), g.send("a"), g.send("b"), g.send("c")]


def texts(value):
    return f"{value!r:>8} {value + 1} {'%d' % value} {value=}", f"{LIMIT:{value}}"


def control(values):
    global LIMIT
    out = []
    try:
        for i, v in enumerate(values):
            if v is None:
                continue
            if v == "stop":
                break
            out.append(v[i] if isinstance(v, list) else v)
        else:
            out.append("all")
        raise KeyError("k")
    except (KeyError, ValueError) as error:
        out.append(error.args[0])
    finally:
        out.append("finally")
    first, *middle, last = out
    del first
    assert middle is not None, "never"
    while len(out) > 2:
        out.pop()
    match out:
        case [a, b]:
            out = (b, a)
        case _:
            pass
    return out, middle, last, LIMIT if LIMIT else None


@doubled
def decorated(x, /, y=2, *args, z):
    return x + y + z + len(args)


def writes():
    x = torch.zeros(3, 2)
    x[0] = 1.0
    x[1:, 0] += 2
    table = {"a": [1, 2]}
    table["a"][0] += 5
    p = Point(1)
    p.x, p.y = p.y, p.x
    return x.tolist(), table, (p.x, p.y, p.total)


def own_locals():
    a = 1
    return sorted(locals())


async def waiting(x):
    return x + 1


def awaited():
    coroutine = waiting(1)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value


def model():
    torch.manual_seed(0)
    net = Derived()
    y, extra = net(torch.ones(2, 3), 1, 2, flag=False, other=[1])
    return y.tolist(), extra, Derived.named(), net.scale, net.offset, type(net).__mro__[1].__name__


def context():
    with torch.no_grad(), torch.autocast("cpu", enabled=False) as nothing:
        return torch.is_grad_enabled()


def operators(a, b):
    return a @ b, not a.sum() > 0, -a, a[..., None, 1:2], a if a is b else b, (a, [b]), 1 < 2 < 3, a.shape[-1] // 2
'''

CALLS = {
    "comprehensions": lambda m: m.comprehensions([1, 2, 3, 4]),
    "closures": lambda m: m.closures(),
    "generator": lambda m: m.run_generator(),
    "texts": lambda m: m.texts(5),
    "control": lambda m: m.control([1, None, [4, 5, 6], "stop"]),
    "control to the end": lambda m: m.control([1]),
    "decorated": lambda m: (m.decorated(1, 5, 6, z=3), m.decorated.__name__),
    "writes": lambda m: m.writes(),
    "locals": lambda m: m.own_locals(),
    "awaited": lambda m: m.awaited(),
    "model": lambda m: m.model(),
    "context": lambda m: m.context(),
    "operators": lambda m: str(m.operators(torch.eye(2), torch.ones(2, 2))),
    "docstring": lambda m: m.__doc__,
    "annotations": lambda m: m.Derived.forward.__annotations__,
}


def _import(name: str, folder: Path, recorder: Recorder | None) -> ModuleType:
    (folder / f"{name}.py").write_text(SOURCE)
    finder = InstrumentingFinder(recorder, lambda full, origin: full == name) if recorder else None
    sys.path.insert(0, str(folder))
    if finder is not None:
        sys.meta_path.insert(0, finder)
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)
        if finder is not None:
            sys.meta_path.remove(finder)
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def instrumented(tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> ModuleType:
    return _import("instrumented_source", tmp_path_factory.mktemp("instrumented"), recorder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return _import("plain_source", tmp_path_factory.mktemp("plain"), None)


@pytest.mark.parametrize("name", CALLS)
def test_instrumented_code_does_what_plain_code_does(name: str, plain: ModuleType, instrumented: ModuleType):
    assert CALLS[name](instrumented) == CALLS[name](plain)


def _sites(recorder: Recorder, module: ModuleType) -> dict[str, list[dict]]:
    """Facts by the source text at their position."""
    found: dict[str, list[dict]] = {}
    for line, column, end, end_column, fact in recorder.to_json()[module.__file__]:
        text = ast.get_source_segment(SOURCE, _position(line, column, end, end_column))
        found.setdefault(text, []).append(fact)
    return found


def _position(line: int, column: int, end: int, end_column: int) -> ast.AST:
    return ast.Constant(0, lineno=line, col_offset=column, end_lineno=end, end_col_offset=end_column)


def test_positions_are_those_of_the_source(recorder: Recorder, instrumented: ModuleType):
    instrumented.model()
    sites = _sites(recorder, instrumented)
    nodes = {ast.get_source_segment(SOURCE, n) for n in ast.walk(ast.parse(SOURCE)) if isinstance(n, ast.expr)}
    assert set(sites) <= nodes
    assert {"self.linear(x)", "super().forward(x)", "len(rest)", "torch.ones(2, 3)"} <= set(sites)


def test_calls_know_what_was_called(recorder: Recorder, instrumented: ModuleType):
    instrumented.model()
    sites = _sites(recorder, instrumented)
    assert sites["self.linear(x)"][0]["callee"] == ["module:torch.nn.modules.linear.Linear"]
    assert sites["torch.ones(2, 3)"][0]["callee"] == ["torch.ones"]
    assert sites["super().forward(x)"][0]["callee"] == ["instrumented_source.Base.forward"]
    assert sites["self.shift(self.linear(x), by=self.offset)"][0]["callee"] == ["instrumented_source.Base.shift"]


def test_values_know_kind_dtype_and_shape(recorder: Recorder, instrumented: ModuleType):
    instrumented.model()
    fact = _sites(recorder, instrumented)["self.linear(x)"][0]
    assert (fact["kinds"], fact["dtypes"], fact["ndims"], fact["shapes"]) == (["tensor"], ["float32"], [2], [(2, 3)])
    assert 4.0 in _sites(recorder, instrumented)["self.offset"][0]["literals"]


def test_methods_of_tensors_are_named(recorder: Recorder, instrumented: ModuleType):
    instrumented.operators(torch.eye(2), torch.ones(2, 2))
    assert _sites(recorder, instrumented)["a.sum()"][0]["callee"] == ["torch.Tensor.sum"]


def test_annotations_and_decorators_are_left_alone(recorder: Recorder, instrumented: ModuleType):
    texts = _sites(recorder, instrumented)
    assert "functools.wraps(function)" not in texts
    assert "int" not in texts
    assert "bool" not in texts


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (torch.zeros(1), "tensor"), (torch.nn.Parameter(torch.zeros(1)), "param"), (None, "none"), (True, "bool"),
        (1, "int"), (1.0, "float"), ("a", "str"), (torch.float32, "dtype"), (torch.device("cpu"), "device"),
        (torch.zeros(2).shape, "tuple"), ([], "list"), ({}, "dict"), (torch.nn.Linear(1, 1), "module"), (int, "class"),
        (len, "callable"), (slice(1), "slice"), (object(), "unknown"),
    ],
)  # fmt: skip
def test_kinds(value: object, kind: str):
    assert kind_of(value) == kind
