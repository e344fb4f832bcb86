"""Every limit of the evaluator, in one place; nothing else in the repository decides how close is close.

An error is max|a-b| / max|b| of one output tensor (compare.py), a may be JAX's and b the oracle's.
"""

import ml_dtypes
import numpy as np

EXACT = 1e-10  # float64 on both sides, explicit float32 lifted
EXACT_WITH_REASON = 1e-9  # where the oracle or the package records why the summation order differs by more
TRACED = 1e-12  # PyTorch beside lines read off its own graph, float64
KL = 1e-8  # float64 logits, nats, mean over positions
TOP1 = 1.0  # share of positions with the same most likely token, float64

PEER_FACTOR = 4.0  # in low precision: at most this many times PyTorch's own error (worst seed) ...
PEER_ULPS = 4.0  # ... plus this many units in the last place of max|b|
MINIMUM_SEEDS = 4

GRADIENT = 1e-7  # per parameter, float64
GRADIENT_FLOOR = 1e-6  # of the largest gradient entry of the model: the denominator is not smaller than that

TRAINING = 1e-8  # relative, each of the losses of the run and each running statistic, float64
TRAINING_STEPS = 20
OWN_FACTOR = (
    10.0  # or this many times what PyTorch's own run moves by when its weights do by one unit in the last place ...
)
OWN_MOST = 1e-5  # ... where that is at most so much: a program that is chaotic beyond it shows nothing
GRADIENT_NOISE = 1e-13  # of the model's largest gradient entry: what is not above that is a rounding error of zero
DROPOUT_SIGMAS = 5.0  # kept share and mean may be this many standard deviations off

SCAN = 1e-10  # the same JAX code scanned and unscanned, sharded and not: float64, only the summation order differs
LONG_POSITIONS = 512
NEAR_TIE = 1e-6  # adversarial inputs keep top-k candidates at least this far apart

SLOWDOWN = 1.5  # steady time over PyTorch's, per operation; catches gross faults
PREFILL_LENGTHS = 100
PREFILL_BUCKETS = 8  # a compiled prefill for this many padded lengths at most

PUBLISHED_KL, PUBLISHED_TOP1 = 1.5e-3, 0.9875  # of a careful port in bfloat16; printed beside ours, no limit


def ulp(peak: float, dtype: str) -> float:
    """One unit in the last place of `peak` in `dtype`, relative to `peak` (0 where the peak is 0)."""
    if not np.isfinite(peak) or peak == 0:
        return 0.0
    info = ml_dtypes.finfo(dtype)
    return float(2.0 ** np.floor(np.log2(abs(peak))) * float(info.eps) / abs(peak))


def peer_limit(own_error: float, peak: float, dtype: str) -> float:
    """The limit on JAX's error, given PyTorch's own worst error and max|b| of one output in `dtype`."""
    return PEER_FACTOR * own_error + PEER_ULPS * ulp(peak, dtype)
