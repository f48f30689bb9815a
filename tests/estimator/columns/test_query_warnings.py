"""What is told of rows to predict: no category known, unless by chance; numbers in another unit."""

import warnings

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.query_warnings import warn_of_queries


def told(training, cells):
    """What is said of cells to predict, after the training cells of the same column."""
    labels = np.arange(len(training)) % 2
    train, test = (pd.DataFrame({"a": c, "b": np.arange(len(c)) % 9}) for c in (training, cells))
    preprocessor = TablePreprocessor()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        preprocessor.fit(train, labels)
        before = len(caught)
        warn_of_queries(preprocessor, test, preprocessor.transform(test), len(train))
        return [str(one.message) for one in caught[before:]]


IDS = [f"id {number}" for number in range(400)]
ANSWERS = ["yes", "no"] * 30
CODES = [f"code {number % 20}" for number in range(600)]
MANY = [f"code {number // 2}" for number in range(800)]  # each of 400 in one class and the other
TELLING = [f"code {number // 4 * 2 + number % 2}" for number in range(1600)]  # each in one class


@pytest.mark.parametrize(
    ("training", "cells", "named"),
    [
        (ANSWERS, ["Yes", "No"] * 5, "'a' ('Yes' here, 'yes' in training)"),
        ([*ANSWERS, None], [None, *["Yes", "No"] * 5], "'a' ('Yes' here, 'yes' in training)"),
        (CODES, ["code 3!"] * 10, "'a' ('code 3!' here, 'code 3' in training)"),
        (TELLING, ["code 3!"] * 10, "'a' ('code 3!' here, 'code 3' in training)"),
    ],
)
def test_cells_that_are_written_otherwise(training, cells, named):
    (message,) = told(training, cells)
    assert f"No value is known from the training table in columns {named}" in message


@pytest.mark.parametrize(
    ("training", "cells"),
    [
        (ANSWERS, ["Yes"] * 9),
        (ANSWERS, ["Yes"] * 9 + [None] * 9),
        (ANSWERS, ["Yes"] * 500 + ["yes"]),
        (ANSWERS, [" yes"] * 10),  # found again
        (ANSWERS, [None] * 20),
        ([*ANSWERS, None], [None] * 20),
        (IDS[:100], IDS[100:200]),
        ([*IDS[:100], *IDS[:5]], IDS[100:400]),  # some rows of training stand there twice
        ([*"abcdefgh", "a", "b"], ["x"] * 10),  # a category in one row of those there were: chance
        (MANY, ["new"] * 50),  # not all are kept, and there are no rates
        (TELLING, ["code 799"] * 10),  # joined with others, but known by its rate
    ],
)
def test_cells_that_are_no_reason(training, cells):
    assert told(training, cells) == []


SHARES = np.linspace(0.01, 1, 50)
PRICES = np.linspace(2, 9.2, 50)


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
