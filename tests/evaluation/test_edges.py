"""Edges of scores and protocols: ties, boundaries of bins and of folds, the level of a test."""

from dataclasses import replace

import numpy as np
import pytest
from evaluation.test_protocol import table

from tabicl_linear.errors import DataError
from tabicl_linear.evaluation.metrics import calibration_error
from tabicl_linear.evaluation.protocol import CC18, prepare
from tabicl_linear.report.comparison import ALPHA, Pair


def test_bins_are_closed_above():
    """One half belongs to the bin below it: with 0.55 beside it the errors would cancel."""
    found = calibration_error(np.array([0.5, 0.55]), np.array([True, False]))
    assert found == pytest.approx((0.5 + 0.55) / 2)


def test_of_equally_frequent_classes_the_first_by_name_stay():
    protocol = replace(CC18, max_classes=3)
    prepared = prepare(table(2000, classes=40), protocol)
    assert sorted(set(prepared.y)) == ["k00", "k01", "k02"]


@pytest.mark.parametrize("rare", [-1, 0])
def test_a_class_needs_a_row_in_every_fold_and_no_more(rare):
    whole = table(300)
    y = np.array(["often"] * 300, dtype=object)
    y[: CC18.folds + rare] = "rare"
    if rare < 0:
        with pytest.raises(DataError, match="fewer than"):
            prepare(replace(whole, y=y), CC18)
    else:
        assert len(prepare(replace(whole, y=y), CC18).y) == 300


def test_a_p_of_exactly_the_level_is_significant():
    pair = Pair("a", "b", 0.1, 0.1, 3, 0, 0, 0.01, ALPHA)
    assert pair.significant
    assert not replace_p(pair, np.nextafter(ALPHA, 1)).significant


def replace_p(pair, adjusted):
    return pair._replace(adjusted=adjusted)
