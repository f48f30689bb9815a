"""Numbers in another unit than in training are told of, and new ones of the same unit are not."""

import warnings

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.estimator.columns.far_off import warn_of_far_off
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor

SHARES = np.linspace(0.01, 1, 50)
PRICES = np.linspace(2, 9.2, 50)


def told(training, cells):
    """What is said of cells to predict, after the training cells of the same column."""
    train, test = (pd.DataFrame({"a": c, "b": np.arange(len(c)) % 9}) for c in (training, cells))
    preprocessor = TablePreprocessor().fit(train)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_far_off(preprocessor, test, preprocessor.transform(test))
        return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("training", "cells", "named"),
    [
        (SHARES, SHARES * 100, "'a' (about 5e+01 here, 0.01 to 1 in training)"),
        (PRICES, [f"{price:.3f}".replace(".", ",") for price in PRICES], "(about 6e+03 here"),
        (PRICES * 1000, [*PRICES, np.nan], "(about 6 here, 2000 to 9200"),
        (-PRICES, -PRICES / 1000, "(about -0.006 here"),
        (1000 + SHARES / 1000, -np.full(10, 1e300), "(about -1e+300 here"),
    ],
)
def test_numbers_in_another_unit_are_told_of(training, cells, named):
    """They were predicted without a word as if they were the largest, or smallest, of training."""
    (message,) = told(training, cells)
    assert "more than 10 times as large, or as small, as all of training" in message
    assert named in message


@pytest.mark.parametrize(
    ("training", "cells"),
    [
        (PRICES, PRICES * 9),
        (PRICES, PRICES[:9] * 1000),
        (PRICES, [*PRICES, *PRICES * 1000]),  # half of them
        (PRICES, [np.nan] * 20),
        (SHARES - 0.5, np.zeros(20)),  # a range around zero has no smallest number
        (np.arange(50), np.zeros(20)),
        (pd.Timestamp("1970-01-02") + pd.to_timedelta(np.arange(50), "D"), ["2024-01-01"] * 20),
    ],
)
def test_numbers_in_the_same_unit_are_not(training, cells):
    assert told(training, cells) == []
