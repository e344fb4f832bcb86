"""The lift: explicit float32 in a model's code becomes float64 while the model is built and run.

Models upcast parts of their computation (norms, softmax, rotary tables) with literal `torch.float32`. With such casts
left in, a float64 run is only float32-exact. Under the lift every float32 request is a float64 request, so two ports of
one model can be compared to about 1e-14.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
_LEGACY = {"torch.FloatTensor": torch.float64, "float32": torch.float64}


class Lift(TorchFunctionMode):
    """Replaces float32 arguments of torch functions by float64, and `Tensor.float()` by `Tensor.double()`."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = {name: _lifted(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        elif func is torch.Tensor.type:
            args = tuple(_LEGACY.get(a, a) if isinstance(a, str) else a for a in args)
        elif func in (torch.set_default_dtype, torch.get_default_dtype):
            return func(*args, **kwargs)
        return func(*(_lifted(a) for a in args), **kwargs)


def _lifted(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


@contextlib.contextmanager
def computing_in(dtype: str) -> Iterator[None]:
    """Default dtype `dtype` inside the block; for float64 also the lift. Building and running both belong inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[dtype])
    try:
        with Lift() if dtype == "float64" else contextlib.nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)
