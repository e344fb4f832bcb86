"""Which dtypes the model's own roots, exponentials and the like are computed in, and what it widens, by module."""

import functools
from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from maxcode.evaluator.oracle.flatten import dtype_name

# Function name -> families, as in evaluator/operations.py: what the function computes when it is lowered.
_FAMILIES = {
    "sqrt": ("root",), "rsqrt": ("root",), "exp": ("exp",), "exp2": ("exp",), "softmax": ("exp",), "softmin": ("exp",),
    "sigmoid": ("exp",), "silu": ("exp",), "log": ("log",), "log1p": ("log",), "log_softmax": ("log",),
    "softplus": ("exp", "log"), "cos": ("trigonometry",), "sin": ("trigonometry",), "tanh": ("tanh",), "erf": ("erf",),
    "erfc": ("erf",),
}  # fmt: skip
_PLACES = (torch, torch.Tensor, torch.special, F)


def _functions() -> dict[Any, tuple[str, ...]]:
    """The functions of torch's namespaces that have those names, their in-place forms included."""
    found: dict[Any, tuple[str, ...]] = {}
    for name, families in _FAMILIES.items():
        for place in _PLACES:
            for spelled in (name, f"{name}_"):
                if (function := getattr(place, spelled, None)) is not None:
                    found[function] = families
    return found


def _is_widened(function: Any, args: tuple, kwargs: dict, result: Any) -> bool:
    """Whether a call's own purpose, or its `dtype`, is to go from a narrower float to float32."""
    casts = (torch.Tensor.float, torch.Tensor.to, torch.Tensor.type)
    if not isinstance(result, torch.Tensor) or result.dtype != torch.float32 or not args:
        return False
    given = args[0]
    narrow = isinstance(given, torch.Tensor) and given.is_floating_point() and given.element_size() < 4
    return narrow and (function in casts or (kwargs.get("dtype") == torch.float32 and given.numel() == result.numel()))


class Operations(TorchFunctionMode):
    """Collects, while it is entered, result dtypes by innermost running module of `model` and family."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._found: dict[str, dict[str, set[str]]] = {}
        self._widened: dict[str, Counter[int]] = {}
        self._running: list[str] = []
        self._functions = _functions()
        # Wrapped, not hooked: `self.attention.forward(x)`, which runs no hook, is the module's own work too.
        self._wrapped = {name: module for name, module in model.named_modules() if "forward" not in vars(module)}
        for name, module in self._wrapped.items():
            vars(module)["forward"] = self._running_in(name, module.forward)

    def __exit__(self, *error: Any) -> None:
        for module in self._wrapped.values():
            vars(module).pop("forward", None)
        super().__exit__(*error)

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if self._running and _is_widened(function, args, kwargs or {}, result):
            self._widened.setdefault(self._running[-1], Counter())[result.numel()] += 1
        for family in self._families(function, kwargs or {}):
            if self._running and isinstance(result, torch.Tensor) and result.is_floating_point():
                families = self._found.setdefault(self._running[-1], {})
                families.setdefault(family, set()).add(dtype_name(result.dtype))
        return result

    def record(self) -> dict[str, dict[str, list[str]]]:
        """`{module: {family: [dtypes]}}`, sorted, of the modules that computed anything of the kind."""
        return {fqn: {f: sorted(v) for f, v in families.items()} for fqn, families in sorted(self._found.items())}

    def widened(self) -> dict[str, dict[str, int]]:
        """`{module: {number of values: how often}}` of arrays that a cast or a `dtype` argument widens to float32."""
        return {fqn: {str(n): times for n, times in sorted(c.items())} for fqn, c in sorted(self._widened.items())}

    def _families(self, function: Any, kwargs: dict) -> tuple[str, ...]:
        if function in (F.gelu, torch._C._nn.gelu):
            return ("tanh",) if kwargs.get("approximate", "none") == "tanh" else ("erf",)
        try:
            return self._functions.get(function, ())
        except TypeError:  # an unhashable callable is none of ours
            return ()

    def _running_in(self, name: str, forward: Any) -> Any:
        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._running.append(name)
            try:
                return forward(*args, **kwargs)
            finally:
                self._running.pop()

        return run
