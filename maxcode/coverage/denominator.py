"""Which of torch's ops count: differentiable, not random, not sparse, not quantised.

How each is decided, for a name with all its variants in `op_db`:
  not differentiable: torch says so of every variant (`supports_autograd`), or differentiates none of them in a floating
    or complex dtype.
  random: at least half of the samples that torch accepts give other values under another seed. A name with a few such
    samples (attention with dropout) counts; of those samples shapes and dtypes are compared.
  sparse: a sample has an argument of another layout than strided, or the name says sparse.
  quantised: neither float32, float64 nor a complex dtype is supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from maxcode.coverage.calls import Call

WIDE = {torch.float32, torch.float64, torch.complex64, torch.complex128}


def left_out(infos: Sequence[Any]) -> str | None:
    """Why a name does not count, by torch's own table; None for one whose samples have to be looked at."""
    if not any(set(info.dtypes) & WIDE for info in infos) and all(_low_precision(info) for info in infos):
        return "quantised"
    if any("sparse" in info.name for info in infos):
        return "sparse"
    differentiable = [i for i in infos if i.supports_autograd and set(i.backward_dtypes) & WIDE]
    return None if differentiable else "not differentiable"


def _low_precision(info: Any) -> bool:
    """Whether every dtype of an entry is floating but narrower than float32."""
    return bool(info.dtypes) and all(d.is_floating_point and d not in WIDE for d in info.dtypes)


def is_sparse(call: Call) -> bool:
    """Whether an argument is of another layout than strided."""
    return any(t.layout is not torch.strided for t in call.tensors())
