"""Differences between two tensors, and between two distributions over a vocabulary."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Difference:
    """max|a-b| / max|b|, where it is, and both values there; `reason` when the two cannot be compared."""

    error: float
    index: tuple[int, ...] = ()
    actual: float = 0.0
    expected: float = 0.0
    peak: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        at = list(self.index)
        return f"{self.error:.2e} (at {at}: {self.actual:.9g}, expected {self.expected:.9g}, max|b| {self.peak:.3g})"


def difference(actual, expected, counts: np.ndarray | None = None) -> Difference:
    """Compare two arrays of any dtype in float64 (integers and booleans must be equal).

    `counts` [leading axes], if given, is true where an entry counts. NaNs and infinities must stand at the same places.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        return Difference(np.inf, reason=f"shape {actual.shape}, expected {expected.shape}")
    if (actual.dtype.kind in "biu") != (expected.dtype.kind in "biu"):
        return Difference(np.inf, reason=f"dtype {actual.dtype}, expected {expected.dtype}")
    complex_ = "c" in (actual.dtype.kind, expected.dtype.kind)
    a, b = (x.astype(np.complex128 if complex_ else np.float64) for x in (actual, expected))
    if counts is not None:
        a, b = a[counts], b[counts]
    if a.size == 0:
        return Difference(0.0)
    if expected.dtype.kind in "biu":
        return _worst(np.where(a == b, 0.0, np.inf), a, b, 1.0)
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # equal infinities and NaNs differ by nothing
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.where(finite, np.abs(a - b), np.inf))
    peak = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    return _worst(gap, a, b, peak)


def _worst(gap: np.ndarray, a: np.ndarray, b: np.ndarray, peak: float) -> Difference:
    index = np.unravel_index(int(gap.argmax()), gap.shape)
    worst = float(gap[index])
    error = 0.0 if worst == 0 else worst / peak if peak else np.inf
    return Difference(error, tuple(map(int, index)), float(a[index].real), float(b[index].real), peak)


def error_histogram(actual, expected) -> dict[str, list]:
    """Counts of |a-b| / max|b| in half decades from 1e-18 to 1; what lies outside falls into the end bins."""
    a, b = np.asarray(actual).astype(np.float64), np.asarray(expected).astype(np.float64)
    peak = np.abs(b[np.isfinite(b)]).max(initial=0.0) or 1.0
    errors = np.nan_to_num(np.abs(a - b) / peak, nan=np.inf)
    edges = 10.0 ** np.arange(-18, 0.5, 0.5)
    counts, _ = np.histogram(np.clip(errors, edges[0], edges[-1]), edges)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def log_softmax(logits) -> np.ndarray:
    logits = np.asarray(logits).astype(np.float64)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def kl_and_top1(actual, expected, counts: np.ndarray | None = None) -> tuple[float, float]:
    """Mean KL(expected || actual) in nats over positions, and the share with the same most likely token.

    Where the expected logits tie for the first place, any of the tied tokens is right. Logits [..., vocabulary].
    """
    actual, expected = np.asarray(actual).astype(np.float64), np.asarray(expected).astype(np.float64)
    if counts is not None:
        actual, expected = actual[counts], expected[counts]
    p, q = log_softmax(expected), log_softmax(actual)
    with np.errstate(invalid="ignore"):
        terms = np.where(np.isneginf(p), 0.0, np.exp(p) * (p - q))
    kl = float(np.maximum(terms.sum(-1), 0.0).mean())
    chosen = np.take_along_axis(expected, actual.argmax(-1)[..., None], -1)[..., 0]
    return kl, float((chosen == expected.max(-1)).mean())


def top1_margin(logits) -> float:
    """The smallest gap between the two largest logits over all positions: below an error, top-1 says little."""
    two = np.sort(np.asarray(logits).astype(np.float64), -1)[..., -2:]
    return float((two[..., 1] - two[..., 0]).min())
