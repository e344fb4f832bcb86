"""Whether a converted call agrees with torch: values, shapes, dtypes, gradients."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from maxcode.converter import registry
from maxcode.converter.support import random
from maxcode.coverage.calls import Call, flat_tensors
from maxcode.coverage.running import Converted, leaves, to_jax

RTOL, ATOL = 1e-7, 1e-9  # of values; an entry's own tolerances widen them
GRADIENT_RTOL, GRADIENT_ATOL = 1e-6, 1e-8
_READS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
)
# What torch itself raises for arguments that it refuses.
REFUSALS = (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError)


class Kind(enum.Enum):
    """What a call's result depends on."""

    FIXED = "fixed"
    RANDOM = "random"  # on a seed: only shape and dtype can be compared


def _from_singular_vectors(left: Any, values: Any, right: Any) -> list[Any]:
    count = values.shape[-1]
    return [values, left[..., :count] * values[..., None, :] @ right[..., :count, :]]


# Vectors whose signs (and what spans a null space) are free and differ between LAPACK builds are compared as products.
RECOMPOSED: dict[str, Callable[..., list[Any]]] = {
    "linalg.svd": _from_singular_vectors,
    "svd": lambda left, values, right: _from_singular_vectors(left, values, right.conj().mT),
    "linalg.eigh": lambda values, vectors: [values, vectors * values[..., None, :] @ vectors.conj().mT],
    "linalg.eig": lambda values, vectors: [values, abs(vectors)],
}
# Arguments of which only one triangle, or the Hermitian part, is defined: their gradients are compared there, as in
# torch's own gradient checks. Name -> position of the argument.
HERMITIAN = {"cholesky": 0, "linalg.cholesky": 0, "linalg.cholesky_ex": 0, "linalg.eigh": 0, "linalg.eigvalsh": 0}
TRIANGULAR = {"cholesky_inverse": 0, "cholesky_solve": 1, "triangular_solve": 1}


def short_name(name: str) -> str:
    """A name without the owner: the function's and the method's are the same."""
    return name.removeprefix("torch.Tensor.").removeprefix("torch.")


@dataclass(frozen=True)
class Expected:
    """torch's results of a call."""

    outputs: list[torch.Tensor | Any]
    kind: Kind


def expected(call: Call) -> Expected | None:
    """torch's results under two seeds, None where torch refuses the arguments."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            first, second = (_seeded(call, seed) for seed in (1, 2))
        except REFUSALS:
            return None
    same = all(_same(a, b) for a, b in zip(leaves(first), leaves(second), strict=True))
    return Expected(first, Kind.FIXED if same else Kind.RANDOM)


def _seeded(call: Call, seed: int) -> Any:
    torch.manual_seed(seed)
    return call.on_torch()


def _same(first: Any, second: Any) -> bool:
    return np.array_equal(first, second, equal_nan=np.asarray(first).dtype.kind in "fc")


def tolerance(name: str) -> tuple[float, float]:
    """(rtol, atol) of a name's values: the widest that its entries ask for."""
    rules = registry.entries(registry.OPS, name)
    return max([RTOL, *(r.rtol or 0 for r in rules)]), max([ATOL, *(r.atol or 0 for r in rules)])


def compared(call: Call, converted: Converted, want: Expected) -> tuple[bool, str | None]:
    """(whether torch has a gradient to compare with, what differs in values or gradients, None when nothing does).

    Results and gradients come out of one compiled program. The scalar whose gradient is taken weighs every real and
    imaginary part of every result with seeded numbers.
    """
    wanted = torch_gradients(call, converted.source.tensors) if want.kind is Kind.FIXED else None
    arrays = {name: to_jax(t) for name, t in converted.source.tensors.items()}
    gradients, weighing = wanted or ({}, [])
    inputs = {name: arrays.pop(name) for name in gradients}

    def scalar(inputs: dict[str, jax.Array], others: dict[str, jax.Array]) -> Any:
        with random.key_scope(jax.random.key(0)):
            outputs = converted.run(**inputs, **others)
        flat = jax.tree.leaves(outputs)
        return _weighed_results(call, flat, weighing) if wanted else 0.0, outputs

    def program(inputs: dict[str, jax.Array], others: dict[str, jax.Array]) -> Any:
        if not wanted:
            return scalar(inputs, others)[1], {}
        found, outputs = jax.grad(scalar, has_aux=True)(inputs, others)
        return outputs, found

    only_arrays = all(isinstance(output, np.ndarray) for output in leaves(want.outputs))
    outputs, found = _run(program, (inputs, arrays), compiled=only_arrays)
    if different := value_difference(call, outputs, want):
        return False, different
    for name, value in gradients.items():
        # JAX's gradient of a real function of complex numbers is the conjugate of torch's.
        got = np.asarray(found[name]).conj()
        got, value = _defined(call, name, got), _defined(call, name, value)
        if text := difference(got, value, GRADIENT_RTOL, GRADIENT_ATOL):
            return True, f"gradient of argument {name[1:]}: {text}"
    return bool(wanted), None


def _run(program: Callable[..., Any], arguments: tuple[Any, ...], *, compiled: bool) -> Any:
    """Run compiled where results are arrays; what needs an argument's values to be traced runs step by step."""
    if not compiled:
        return program(*arguments)
    try:
        return jax.jit(program)(*arguments)
    except _READS_VALUES:
        return program(*arguments)


def value_difference(call: Call, outputs: Any, want: Expected) -> str | None:
    """What differs between the converted call's results and torch's, None when nothing does."""
    found, wanted = leaves(outputs), leaves(want.outputs)
    if len(found) != len(wanted):
        return f"{len(found)} results, torch gives {len(wanted)}"
    types = [type_difference(got, value) for got, value in zip(found, wanted, strict=True)]
    if any(types) or want.kind is Kind.RANDOM or "empty" in call.name:  # memory that nobody filled
        return next(filter(None, types), None)
    if recompose := RECOMPOSED.get(short_name(call.name)):
        found, wanted = recompose(*found), recompose(*wanted)
    rtol, atol = tolerance(call.name)
    differences = (difference(got, value, rtol, atol) for got, value in zip(found, wanted, strict=True))
    return next(filter(None, differences), None)


def type_difference(got: Any, want: Any) -> str | None:
    """What differs in shape and dtype, None for what is no array."""
    if not isinstance(want, np.ndarray):
        return None
    got = np.asarray(got)
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, torch gives {list(want.shape)}"
    return f"dtype {got.dtype}, torch gives {want.dtype}" if got.dtype != want.dtype else None


def difference(got: Any, want: Any, rtol: float, atol: float) -> str | None:
    """What differs in value, by how much."""
    if not isinstance(want, np.ndarray):
        return None if got == want else f"{got!r}, torch gives {want!r}"
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype.kind not in "fciub":  # bfloat16 and other extension types
        got, want = got.astype(np.float64), want.astype(np.float64)
    if np.allclose(got, want, rtol, atol, equal_nan=True):
        return None
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.complex128) - want.astype(np.complex128))
    if np.array_equal(np.isfinite(got), np.isfinite(want)):
        return f"values differ by {np.nanmax(apart):.1e}"
    return "values differ in what is infinite or not a number"


def torch_gradients(call: Call, tensors: dict[str, torch.Tensor]) -> Any:
    """({name: gradient}, weights by result), None where torch differentiates nothing here."""
    inputs = {name: t for name, t in tensors.items() if t.requires_grad}
    if not inputs:
        return None
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outputs = _recomposed(call, flat_tensors(call.on_torch()))
            weighing = [weights(o, i) if o.requires_grad else None for i, o in enumerate(outputs)]
            if not any(w is not None for w in weighing):
                return None
            scalar = weighed(outputs, weighing, lambda o: o.real if o.is_complex() else o, lambda o: o.imag)
            found = torch.autograd.grad(scalar, list(inputs.values()), allow_unused=True)
        except REFUSALS:
            return None
    gradients = {
        name: np.zeros(t.shape) if grad is None else np.asarray(grad.resolve_conj().numpy(force=True))
        for (name, t), grad in zip(inputs.items(), found, strict=True)
    }
    return gradients, weighing


def _weighed_results(call: Call, outputs: Sequence[Any], weighing: Sequence[Any]) -> Any:
    return weighed(_recomposed(call, outputs), weighing, jnp.real, jnp.imag)


def _recomposed(call: Call, outputs: Sequence[Any]) -> Sequence[Any]:
    recompose = RECOMPOSED.get(short_name(call.name))
    return outputs if recompose is None else recompose(*outputs)


def weights(output: torch.Tensor, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Seeded numbers by which a result's real and imaginary parts are weighed."""
    draw = np.random.default_rng(seed).uniform
    return draw(0.5, 1.5, output.shape), draw(0.5, 1.5, output.shape) if output.is_complex() else None


def weighed(outputs: Sequence[Any], weights: Sequence[Any], real: Callable, imag: Callable) -> Any:
    """The sum of the results' parts times their weights, on either side."""
    total: Any = 0.0
    for output, weight in zip(outputs, weights, strict=True):
        if weight is not None:
            as_own = torch.from_numpy if isinstance(output, torch.Tensor) else jnp.asarray
            total = total + (real(output) * as_own(weight[0])).sum()
            total = total + (imag(output) * as_own(weight[1])).sum() if weight[1] is not None else total
    return total


def _defined(call: Call, name: str, gradient: np.ndarray) -> np.ndarray:
    """The part of a gradient that both sides define."""
    short, position = short_name(call.name), int(name[1:])
    hermitian = HERMITIAN.get(short) == position or (short == "linalg.pinv" and call.kwargs.get("hermitian"))
    if hermitian and gradient.ndim >= 2:
        return gradient + gradient.conj().swapaxes(-1, -2)
    if TRIANGULAR.get(short) == position:
        default = short == "triangular_solve"
        return np.triu(gradient) if call.kwargs.get("upper", default) else np.tril(gradient)
    return gradient
