"""Calls on 0-d tensors: torch takes them as vectors of one entry wherever an axis is named.

`x.sum(0)`, `x.sort()`, `softmax(x, -1)` of a 0-d x mean the same as on `x.reshape(1)`, with the axis taken away again.
A
rule says with `vectors=("input", …)` which arguments are lifted so; the first decides, by the rank that the runs saw.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from maxcode.converter.arguments import Bound, fact, is_omitted
from maxcode.converter.facts import Fact

HELPER = "as_scalars"


def lifted(bound: Bound, vectors: Sequence[str]) -> Bound | None:
    """The call with its 0-d `vectors` as vectors, None where the first is not 0-d or no axis is named."""
    if not vectors or fact(bound.given.get(vectors[0])).ndim != 0 or _reduces_everything(bound):
        return None
    given = {
        name: _as_vector(value) if name in vectors and isinstance(value, ast.expr) and fact(value).ndim == 0 else value
        for name, value in bound.given.items()
    }
    return replace(bound, given=given)


def _reduces_everything(bound: Bound) -> bool:
    """Whether an axis could be named and is not."""
    if "dim" not in bound.signature.parameters or bound.signature.parameters["dim"].default is not None:
        return False
    return is_omitted(bound.given.get("dim"))


def _as_vector(value: ast.expr) -> ast.expr:
    found = fact(value)
    vector = ast.Call(ast.Attribute(value, "reshape", ast.Load()), [ast.Constant(1)], [])
    vector.fact = Fact("tensor", found.dtypes, frozenset({1}), ((1,),))
    return vector
