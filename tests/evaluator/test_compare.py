import ml_dtypes
import numpy as np
import pytest

from maxcode.evaluator import tolerance
from maxcode.evaluator.compare import difference, error_histogram, kl_and_top1


def test_error_is_relative_to_the_largest_expected_value():
    found = difference(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    assert found.error == 0.25
    assert (found.index, found.actual, found.expected) == ((1,), 2.5, 2.0)


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        (np.zeros(2), np.zeros(2), 0.0),
        (np.ones(2), np.zeros(2), np.inf),
        (np.array([np.inf, 1.0]), np.array([np.inf, 1.0]), 0.0),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 0.0),
        (np.array([np.nan, 1.0]), np.array([0.0, 1.0]), np.inf),
        (np.array([0.0, 1.0]), np.array([np.inf, 1.0]), np.inf),
        (np.array([1, 2]), np.array([1, 3]), np.inf),
        (np.array([1, 2], np.int32), np.array([1, 2], np.int64), 0.0),
        (np.array([1, 2]), np.array([1.0, 2.0]), np.inf),
        (np.zeros((2, 1)), np.zeros(2), np.inf),
        (np.zeros((0, 3)), np.zeros((0, 3)), 0.0),
        (np.array([1j]), np.array([1.0 + 0j]), np.sqrt(2)),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0]), 0.0),
    ],
)
def test_special_values(actual, expected, error):
    assert difference(actual, expected).error == pytest.approx(error)


def test_positions_that_do_not_count_are_left_out():
    actual, expected = np.array([[1.0, 9.0]]), np.array([[1.0, 2.0]])
    assert difference(actual, expected, np.array([[True, False]])).error == 0


def test_kl_and_top1_of_equal_and_of_different_logits():
    logits = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 1.0]])
    assert kl_and_top1(logits, logits) == (0.0, 1.0)
    kl, top1 = kl_and_top1(logits[:, ::-1], logits)
    assert kl > 0.1
    assert top1 == 0.0


def test_top1_accepts_any_of_tied_tokens():
    assert kl_and_top1(np.array([[1.0, 1.1]]), np.array([[1.0, 1.0]]))[1] == 1.0


def test_ulp_is_the_spacing_at_the_peak():
    assert tolerance.ulp(3.0, "float32") * 3 == pytest.approx(float(np.spacing(np.float32(3.0))))
    assert tolerance.ulp(1.0, "bfloat16") == 2.0**-7
    assert tolerance.ulp(0.0, "float32") == 0.0


def test_peer_limit_is_four_errors_and_four_ulp():
    assert tolerance.peer_limit(1e-3, 1.0, "bfloat16") == pytest.approx(4e-3 + 4 * 2.0**-7)


def test_histogram_counts_every_entry():
    found = error_histogram(np.array([1.0, 1.0 + 1e-12, np.nan]), np.ones(3))
    assert sum(found["counts"]) == 3
    assert found["counts"][0] == found["counts"][-1] == 1
