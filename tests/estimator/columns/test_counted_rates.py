"""Rates of a table to which rows are added: each row by those before it, wherever it is cut."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.estimator.columns import counted_rates
from tabicl_linear.estimator.columns.counted_rates import CountedRateColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import RateColumn, fit_rates

FIRST = 300
"""Rows that teach the columns."""


def shops(num_rows=900, seed=0):
    """Categories, some of which come late, gaps, and classes whose chance depends on both."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(20 + 20 * (np.arange(num_rows) >= FIRST), size=num_rows)
    cells = pd.Series([f"shop {code}" for code in codes], dtype=object)
    is_absent = rng.random(num_rows) < 0.05
    cells[is_absent] = None
    chance = np.where(is_absent, 0.9, np.where(codes % 3 == 0, 0.8, 0.2))
    return cells, (rng.random(num_rows) < chance).astype(np.int64)


@pytest.fixture
def learnt():
    cells, labels = shops()
    (column,) = fit_rates(cells[:FIRST], 0, labels[:FIRST])
    return CountedRateColumn.of(column, cells[:FIRST], labels[:FIRST])


def by_hand(column, cells, labels):
    """The rate of each row, one after the other."""
    seen, rates = {}, []
    for cell, label in zip(cells, labels, strict=True):
        rows, hits = seen.get(cell, (0, 0))
        rates.append((hits + column.strength * column.mean) / (rows + column.strength))
        seen[cell] = (rows + 1, hits + (label == column.label))
    return np.array(rates)


def test_a_row_has_the_rate_of_the_rows_before_it(learnt):
    cells, labels = shops()
    rates, _ = learnt.read(cells[FIRST:], labels[FIRST:])
    np.testing.assert_allclose(rates, by_hand(learnt, cells, labels)[FIRST:], rtol=1e-12)


@pytest.mark.parametrize("cuts", [(301,), (400, 401, 650), tuple(range(301, 900, 7))])
def test_cuts_do_not_matter(cuts, learnt):
    cells, labels = shops()
    expected, whole = learnt.read(cells[FIRST:], labels[FIRST:])
    column, parts = learnt, []
    for start, end in pairwise((FIRST, *cuts, 900)):
        rates, column = column.read(cells[start:end], labels[start:end])
        parts.append(rates)
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert column.places == whole.places
    np.testing.assert_array_equal(column.rows, whole.rows)
    np.testing.assert_array_equal(column.hits, whole.hits)


def test_rows_to_predict_have_the_rate_of_all_rows(learnt):
    cells, labels = shops()
    before = learnt.rows.copy()
    _, column = learnt.read(cells[FIRST:], labels[FIRST:])
    np.testing.assert_array_equal(learnt.rows, before)
    for cell in ["shop 3", "shop 33", None]:
        where = cells.isna() if cell is None else cells == cell
        rows, hits = where.sum(), labels[where].sum()
        expected = (hits + column.strength * column.mean) / (rows + column.strength)
        assert column.encode(pd.Series([cell], dtype=object))[0] == pytest.approx(expected)
    assert column.encode(pd.Series(["never seen"]))[0] == pytest.approx(column.mean)


def test_at_first_they_are_those_that_were_learnt(learnt):
    cells, labels = shops()
    (column,) = fit_rates(cells[:FIRST], 0, labels[:FIRST])
    np.testing.assert_allclose(learnt.encode(cells), column.encode(cells), rtol=1e-12)


def test_the_first_categories_are_counted_and_no_others(learnt, monkeypatch):
    monkeypatch.setattr(counted_rates, "MOST_COUNTED", 25)
    cells, labels = shops()
    _, column = learnt.read(cells[FIRST:], labels[FIRST:])
    late = list(dict.fromkeys(cells[FIRST:].dropna().tolist()))
    late = [cell for cell in late if cell not in learnt.places]
    assert list(column.places) == [*learnt.places, *late[:5]]
    rates = column.encode(pd.Series(late[5:], dtype=object))
    np.testing.assert_allclose(rates, column.mean, rtol=1e-12)
    counted = cells.isna() | cells.isin(list(column.places))
    assert column.rows.sum() == counted.sum()


def test_a_table_counts_beside_its_other_columns():
    """Also in a file, where the records are apart from those of the matrix."""
    cells, labels = shops()
    frame = pd.DataFrame({"constant": 1.0, "shop": cells, "n": np.arange(900.0)})
    columns = TablePreprocessor()
    columns.fit_transform(frame[:FIRST], labels[:FIRST])
    counting = columns.counting(frame[:FIRST], labels[:FIRST])
    assert any(isinstance(column, RateColumn) for column in columns.used)
    (place,) = [
        i for i, column in enumerate(counting.used) if isinstance(column, CountedRateColumn)
    ]
    matrix, after = counting.read(frame[FIRST:], labels[FIRST:])
    expected, column = counting.used[place].read(cells[FIRST:], labels[FIRST:])
    np.testing.assert_array_equal(matrix[:, place], expected.astype(np.float32))
    others = np.arange(matrix.shape[1]) != place
    np.testing.assert_array_equal(matrix[:, others], columns.transform(frame[FIRST:])[:, others])
    np.testing.assert_array_equal(
        after.transform(frame)[:, place], column.encode(cells).astype(np.float32)
    )
