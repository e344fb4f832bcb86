"""torch's sample calls of a function, under every public spelling of it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What a sample is asked for, in order of preference.
DTYPES = (torch.float64, torch.complex128, torch.int64, torch.bool)


@dataclass(frozen=True)
class Call:
    """One call of a torch function on concrete arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on_torch(self) -> Any:
        """The function's own result; an attribute is read."""
        function = resolve(self.name)
        if not callable(function):
            return getattr(self.args[0], self.name.rpartition(".")[2])
        args = self.args
        if self.name.endswith("_") and not self.name.endswith("__"):  # works in place, which no leaf allows
            args = (args[0].clone(), *args[1:])
        return function(*args, **self.kwargs)

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor among the arguments, in lists too."""
        return flat_tensors((*self.args, *self.kwargs.values()))

    def __str__(self) -> str:
        shown = [describe(a) for a in self.args] + [f"{k}={describe(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


def describe(value: Any) -> str:
    """A short text of an argument."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return f"[{', '.join(map(describe, value))}]"
    return repr(value)


def flat_tensors(value: Any) -> list[torch.Tensor]:
    """Tensors of a result or of arguments, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [leaf for item in value for leaf in flat_tensors(item)] if isinstance(value, tuple | list) else []


def resolve(name: str) -> Callable[..., Any]:
    """The object behind a dotted torch name. Raises AttributeError."""
    return functools.reduce(getattr, name.split(".")[1:], torch)


def exists(name: str) -> bool:
    """Whether torch has a function, method or attribute of a tensor of this dotted name (`torch.half` is a dtype)."""
    try:
        found = resolve(name)
    except (AttributeError, RuntimeError):
        return False
    return callable(found) or name.startswith("torch.Tensor.")


@functools.cache
def entries() -> dict[str, list[Any]]:
    """torch's OpInfo entries by name; variants of a name belong together."""
    from torch.testing._internal.common_methods_invocations import op_db

    table: dict[str, list[Any]] = {}
    for info in op_db:
        table.setdefault(info.name, []).append(info)
    return table


def spellings(info: Any) -> list[str]:
    """The public names of an entry: function, method, and those of its aliases."""
    names = [info.name, *(alias.name for alias in info.aliases)]
    found = []
    for name in names:
        plain = name if name.startswith("torch.") else f"torch.{name}"
        found += [plain] if exists(plain) else []
        method = f"torch.Tensor.{name}"
        found += [method] if "." not in name and exists(method) else []
    return list(dict.fromkeys(found))


@functools.cache
def op_infos() -> dict[str, list[Any]]:
    """torch's OpInfo entries by the public names that they cover (function, functional and method forms)."""
    table: dict[str, list[Any]] = {}
    for infos in entries().values():
        for info in infos:
            for name in spellings(info):
                table.setdefault(name, []).append(info)
    return table


def sample_dtype(info: Any) -> torch.dtype | None:
    """The dtype in which an entry is measured: float64 where it has that."""
    return next((dtype for dtype in DTYPES if dtype in info.dtypes), None)


def samples(info: Any, dtype: torch.dtype | None = None, *, requires_grad: bool = False) -> list[Any]:
    """torch's samples of an entry, seeded; [] where no dtype of ours is supported."""
    dtype = dtype or sample_dtype(info)
    if dtype is None:
        return []
    differentiated = requires_grad and info.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(info.sample_inputs("cpu", dtype, requires_grad=differentiated))


class _FirstCall(TorchFunctionMode):
    """Notes the arguments of the first torch function that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.arguments is None:
            self.arguments = (tuple(args), dict(kwargs or {}))
        return func(*args, **(kwargs or {}))


def as_call(name: str, info: Any, sample: Any) -> Call:
    """A sample as a call of the function under one of its names.

    An entry may order arguments in a lambda (`where`, `embedding`): it is called, and what it calls is taken.
    """
    function = info.method_variant if name.startswith("torch.Tensor.") else info.op
    plain = Call(name, (sample.input, *sample.args), dict(sample.kwargs))
    if getattr(function, "__name__", "") != "<lambda>" or not callable(resolve(name)):
        return plain
    with _FirstCall() as seen:
        try:
            function(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, IndexError, ValueError):
            return plain
    return plain if seen.arguments is None else Call(name, *seen.arguments)


def calls(name: str, *, requires_grad: bool = False) -> Iterator[Call]:
    """Yield torch's sample calls of a function, in the first supported one of `DTYPES`."""
    for info in op_infos().get(name, ()):
        for sample in samples(info, requires_grad=requires_grad):
            yield as_call(name, info, sample)
