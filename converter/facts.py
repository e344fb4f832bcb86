"""What the instrumented run saw at an expression: its kind, dtypes, shapes, callee and constant value."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

KINDS = frozenset(
    {
        "tensor",
        "param",
        "buffer",
        "module",
        "int",
        "float",
        "bool",
        "str",
        "none",
        "dtype",
        "device",
        "slice",
        "tuple",
        "list",
        "dict",
        "config",
        "cache",
        "callable",
        "class",
        "unknown",
    }
)
TENSOR_KINDS = frozenset({"tensor", "param", "buffer"})
_SCALARS = (bool, int, float, str, type(None))


class Missing(enum.Enum):
    """Type of `MISSING`; an enum, so that copies and pickles stay the same object."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing.MISSING


@dataclass(frozen=True)
class Fact:
    """One expression over all recorded runs.

    Attributes:
      kind: one of `KINDS`; "unknown" when runs disagree.
      dtypes: torch dtype names without the prefix ("float32"), of tensors and of dtype values.
      ndims: ranks seen, of tensors; of tuples, lists and dicts their lengths.
      shapes: the distinct tensor shapes in order of first appearance.
      callee: qualified name of the function or class that was called or referenced, e.g. "torch.Tensor.view".
      literal: the Python scalar, string or None that every run saw, else `MISSING`.
    """

    kind: str = "unknown"
    dtypes: frozenset[str] = frozenset()
    ndims: frozenset[int] = frozenset()
    shapes: tuple[tuple[int, ...], ...] = ()
    callee: str | None = None
    literal: Any = MISSING

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"fact kind is {self.kind!r}; expected one of {', '.join(sorted(KINDS))}")
        if self.literal is not MISSING and not isinstance(self.literal, _SCALARS):
            raise TypeError(f"fact literal is a {type(self.literal).__name__}; expected a Python scalar, str or None")

    @property
    def is_tensor(self) -> bool:
        """Whether every run saw a tensor, parameters and buffers included."""
        return self.kind in TENSOR_KINDS

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The only shape seen, or None when there were several or none."""
        return self.shapes[0] if len(self.shapes) == 1 else None

    @property
    def ndim(self) -> int | None:
        """The only rank seen, or None when there were several or none."""
        return next(iter(self.ndims)) if len(self.ndims) == 1 else None

    @property
    def dtype(self) -> str | None:
        """The only dtype seen, or None when there were several or none."""
        return next(iter(self.dtypes)) if len(self.dtypes) == 1 else None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; empty fields are left out."""
        record: dict[str, Any] = {"kind": self.kind}
        if self.dtypes:
            record["dtypes"] = sorted(self.dtypes)
        if self.ndims:
            record["ndims"] = sorted(self.ndims)
        if self.shapes:
            record["shapes"] = [list(shape) for shape in self.shapes]
        if self.callee is not None:
            record["callee"] = self.callee
        if self.literal is not MISSING:
            record["literal"] = self.literal
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Fact:
        """Read what `to_json` wrote. Raises ValueError naming the fields that no fact has."""
        known = {"kind", "dtypes", "ndims", "shapes", "callee", "literal"}
        if extra := sorted(set(record) - known):
            raise ValueError(f"fact has unknown fields {extra}; expected only {sorted(known)}")
        return cls(
            kind=record["kind"],
            dtypes=frozenset(record.get("dtypes", ())),
            ndims=frozenset(record.get("ndims", ())),
            shapes=tuple(tuple(shape) for shape in record.get("shapes", ())),
            callee=record.get("callee"),
            literal=record.get("literal", MISSING),
        )

    def join(self, other: Fact) -> Fact:
        """Return what holds for both: sets are united, single values kept only where they agree."""
        return Fact(
            kind=_join_kinds(self.kind, other.kind),
            dtypes=self.dtypes | other.dtypes,
            ndims=self.ndims | other.ndims,
            shapes=tuple(dict.fromkeys(self.shapes + other.shapes)),
            callee=self.callee if self.callee == other.callee else None,
            literal=self.literal if _same_literal(self.literal, other.literal) else MISSING,
        )


def join(facts: list[Fact]) -> Fact:
    """Join any number of facts; none at all gives the unknown fact."""
    if not facts:
        return Fact()
    result = facts[0]
    for fact in facts[1:]:
        result = result.join(fact)
    return result


def _join_kinds(left: str, right: str) -> str:
    if left == right:
        return left
    return "tensor" if {left, right} <= TENSOR_KINDS else "unknown"


def _same_literal(left: Any, right: Any) -> bool:
    # 1, 1.0 and True are equal in Python but not the same literal; nan is one literal although it differs from itself.
    return type(left) is type(right) and (left == right or (left != left and right != right))
