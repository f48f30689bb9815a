"""Which training rows are told of as copies of others, and which are the same by chance."""

import warnings

import numpy as np
import pandas as pd
import pytest

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.estimator.columns.copies import warn_of_copies
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor

NUM_ROWS = 60


def told(table, labels):
    """What is said of rows when a preprocessor has learnt their columns."""
    preprocessor = TablePreprocessor(pairs=True)
    matrix = preprocessor.fit_transform(table, labels)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_copies(preprocessor, matrix, labels)
    return [str(one.message) for one in caught]


@pytest.fixture
def rows():
    """A table of numbers, many categories and gaps, and labels that depend on the first column."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=NUM_ROWS),
            "b": rng.choice([1.0, 2.0, np.nan], NUM_ROWS),
            "kind": [f"k{number}" for number in rng.integers(20, size=NUM_ROWS)],
        }
    )
    return table, (table["a"] > 0).astype(int).to_numpy()


def repeated(rows, numbers):
    table, labels = rows
    return table.iloc[numbers], labels[numbers]


@pytest.mark.parametrize(
    "numbers",
    [
        np.tile(np.arange(NUM_ROWS), 2),
        np.r_[np.arange(NUM_ROWS), np.zeros(7, dtype=int)],
        np.random.default_rng(1).integers(NUM_ROWS, size=2 * NUM_ROWS),
    ],
    ids=["all twice", "one eight times", "drawn"],
)
def test_copies_are_told_of(rows, numbers):
    (text,) = told(*repeated(rows, numbers))
    num_copies = len(numbers) - len(np.unique(numbers))
    assert text.startswith(f"{num_copies} of {len(numbers)} training rows repeat others")
    assert "'a'" in text
    assert "drop_duplicates" in text


def test_few_copies_are_not(rows):
    assert told(*repeated(rows, np.r_[np.arange(NUM_ROWS), np.zeros(6, dtype=int)])) == []


def test_rows_that_are_the_same_by_chance_are_not(rows):
    table, labels = repeated(rows, np.tile(np.arange(NUM_ROWS), 2))
    few_values = table.assign(a=table["a"].round())
    assert len(few_values.drop_duplicates()) < NUM_ROWS
    assert told(few_values, labels) == []
    assert told(table[["a"]], labels) == []
    others = labels.copy()
    others[NUM_ROWS:][::10] ^= 1
    assert told(table, others) == []


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("make", [TabICLLinearClassifier, RandomFeatureRidge])
def test_a_fit_tells_of_copies_once(rows, make):
    """With oversampled rows, probabilities were far too certain without a word."""
    table, labels = repeated(rows, np.tile(np.arange(NUM_ROWS), 2))
    table = table[["a", "b"]]
    with pytest.warns(UserWarning, match="seem to be copies") as caught:
        make(n_estimators=1).fit(table, labels)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(n_estimators=1).fit(table[:NUM_ROWS], labels[:NUM_ROWS])
