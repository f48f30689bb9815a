"""Columns in which no category is known are told of, unless chance explains it."""

import warnings

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.unknown import warn_of_unknown


def told(training, cells):
    """What is said of cells to predict, after the training cells of the same column."""
    labels = np.arange(len(training)) % 2
    train, test = (pd.DataFrame({"a": c, "b": np.arange(len(c))}) for c in (training, cells))
    preprocessor = TablePreprocessor()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        preprocessor.fit(train, labels)
        before = len(caught)
        warn_of_unknown(preprocessor, test, preprocessor.transform(test), len(train))
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
