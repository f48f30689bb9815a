"""Scores against their definitions; ROC-AUC by counting pairs is in `tests/test_development.py`."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from tabicl_linear.errors import DataError
from tabicl_linear.evaluation.metrics import (
    as_distributions,
    calibration_error,
    mean_log_loss,
    score,
)

CLASSES = np.array(["a", "b", "c"], dtype=object)


def drawn(rows=200, classes=3):
    rng = np.random.default_rng(0)
    y = CLASSES[rng.integers(0, classes, rows)]
    return rng.dirichlet(np.ones(classes), rows), y


def naive_calibration_error(confidence, right):
    """Bin by bin, closed above."""
    edges = np.linspace(0, 1, 11)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    return total


class TestScores:
    def test_calibration_error_against_its_definition(self):
        probabilities, y = drawn()
        confidence = probabilities.max(1)
        right = CLASSES[probabilities.argmax(1)] == y
        expected = naive_calibration_error(confidence, right)
        np.testing.assert_allclose(calibration_error(confidence, right), expected, rtol=1e-12)
        np.testing.assert_allclose(score(probabilities, y, CLASSES).ece, expected, rtol=1e-12)

    @pytest.mark.parametrize(
        ("confidence", "right", "expected"),
        [([1.0, 1.0], [True, True], 0.0), ([1.0, 1.0], [True, False], 0.5), ([0.6], [True], 0.4)],
    )
    def test_calibration_error_by_hand(self, confidence, right, expected):
        result = calibration_error(np.array(confidence), np.array(right))
        assert result == pytest.approx(expected)

    def test_roc_auc_is_the_library_s_weighted_average(self):
        probabilities, y = drawn()
        expected = roc_auc_score(y, probabilities, multi_class="ovr", average="weighted")
        np.testing.assert_allclose(score(probabilities, y, CLASSES).roc_auc, expected, rtol=1e-12)

    def test_scale_of_the_rows_does_not_matter(self):
        probabilities, y = drawn()
        assert score(probabilities * 4, y, CLASSES) == score(probabilities, y, CLASSES)

    def test_log_loss_is_of_the_digits_that_are_given(self):
        """A certain mistake in float64, where float32 knows nothing below 1e-7."""
        y = np.array(["a", "b", "a", "z"], dtype=object)
        certain = np.array([[1e-12, 1.0], [0.25, 0.75], [0.5, 0.5], [0.5, 0.5]])
        expected = -np.log([1e-12, 0.75, 0.5]).mean()
        result = mean_log_loss(certain, y, CLASSES[:2])
        assert result == pytest.approx(expected, rel=1e-9)
        assert score(certain, y, CLASSES[:2]).log_loss == result
        never = np.array([[0.0, 1.0], [0.0, 1.0]])
        most = -np.log(np.finfo(np.float64).eps)
        assert mean_log_loss(never, y[:2], CLASSES[:2]) == pytest.approx(most / 2)
        assert mean_log_loss(3 * certain, y, CLASSES[:2]) == pytest.approx(expected, rel=1e-9)

    def test_log_loss_is_the_library_s(self):
        probabilities, y = drawn()
        expected = log_loss(y, probabilities)
        np.testing.assert_allclose(mean_log_loss(probabilities, y, CLASSES), expected, rtol=1e-12)

    def test_one_class_has_no_area(self):
        probabilities, _ = drawn()
        with pytest.raises(DataError, match="have 1 of the 3 classes"):
            score(probabilities, np.full(200, "a", dtype=object), CLASSES)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1])
def test_what_is_no_probability(bad):
    probabilities, _ = drawn()
    assert as_distributions(probabilities).dtype == np.float32
    probabilities[3, 1] = bad
    with pytest.raises(DataError, match="negative or not finite"):
        as_distributions(probabilities)
    with pytest.raises(DataError, match="probability 0 for every class"):
        as_distributions(np.zeros((2, 2)))
