"""Rates of classes in columns of many categories: right, small, and without the row's own label."""

import pickle

import numpy as np
import pandas as pd
import pytest

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import (
    MAX_CLASSES,
    MAX_RATES,
    MIN_CATEGORIES,
    NUM_FOLDS,
    RateColumn,
    fit_rates,
)
from tabicl_linear.ridge_inputs import RidgeOptions

SMALL = RidgeOptions(num_tanh=16, num_cosine=16, num_trees=8)


def names(codes):
    return pd.Series([f"c{code:05d}" for code in codes])


def drawn(num_rows, num_categories, *, num_classes=2, spread=0.35, seed=0):
    """Categories, and classes whose chance depends on the category."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(num_categories, size=num_rows)
    base = rng.integers(num_classes, size=num_categories)
    random = rng.integers(num_classes, size=num_rows)
    return names(codes), np.where(rng.random(num_rows) < 2 * spread, base[codes], random)


def test_rates_are_shrunk_means_of_the_training_rows():
    cells, labels = drawn(2000, 40)
    (column,) = fit_rates(cells, 0, labels)
    assert column.label == 1
    assert column.mean == labels.mean()
    for category, rows in pd.Series(labels).groupby(cells):
        expected = (rows.sum() + column.strength * column.mean) / (len(rows) + column.strength)
        assert column.rates[category] == pytest.approx(expected)
    assert column.encode(pd.Series(["never seen"])).tolist() == [column.mean]


def test_strength_is_the_ratio_of_the_variances():
    rng = np.random.default_rng(0)
    chances = rng.beta(2, 4, size=400)  # of strength 2 + 4
    codes = np.repeat(np.arange(400), 50)
    labels = (rng.random(len(codes)) < chances[codes]).astype(int)
    (column,) = fit_rates(names(codes), 0, labels)
    assert column.strength == pytest.approx(6, rel=0.15)


@pytest.mark.parametrize("num_rows", [500, 5000])
def test_categories_without_meaning_get_no_rates(num_rows):
    labels = np.random.default_rng(1).integers(2, size=num_rows)
    assert fit_rates(names(np.arange(num_rows) % 97), 0, labels) == ()
    assert fit_rates(names(np.arange(num_rows)), 0, labels) == ()  # all different
    assert fit_rates(names(np.arange(num_rows) // 2), 0, labels) == ()


def test_a_rows_own_label_is_not_in_its_rate():
    cells, labels = drawn(300, 60)
    (column,) = fit_rates(cells, 0, labels)
    rates = column.cross_fitted(labels, cells)
    for row in range(0, 300, 7):
        flipped = labels.copy()
        flipped[row] = 1 - labels[row]
        assert column.cross_fitted(flipped, cells)[row] == rates[row]


def test_cross_fitted_rates_are_those_of_the_other_folds():
    cells, labels = drawn(300, 30)
    (column,) = fit_rates(cells, 0, labels)
    folds = np.random.default_rng(0).permutation(300) % NUM_FOLDS
    expected = np.empty(300)
    for row in range(300):
        others = (cells == cells[row]).to_numpy() & (folds != folds[row])
        hits = labels[others].sum() + column.strength * column.mean
        expected[row] = hits / (others.sum() + column.strength)
    np.testing.assert_allclose(column.cross_fitted(labels, cells), expected)


def test_labels_by_chance_cannot_be_read_from_training_rates():
    rng = np.random.default_rng(0)
    cells, labels = names(np.arange(4000) // 2), rng.integers(2, size=4000)
    column = RateColumn("a", 0, 1, {}, 0.5, 0.5, 1.0)
    leaked = pd.Series(labels).groupby(cells).transform("mean")
    assert np.corrcoef(leaked, labels)[0, 1] > 0.6
    assert abs(np.corrcoef(column.cross_fitted(labels, cells), labels)[0, 1]) < 0.06


def test_missing_is_a_category_with_a_rate_of_its_own():
    cells, labels = drawn(2000, 30)
    cells[labels == 1] = cells[labels == 1].where(np.arange((labels == 1).sum()) % 4 > 0)
    (column,) = fit_rates(cells, 0, labels)
    assert column.missing > 0.95
    assert column.encode(pd.Series([None, ""])).tolist() == [column.missing] * 2


def test_every_frequent_class_has_rates():
    cells, labels = drawn(6000, 40, num_classes=12)
    labels[labels > 9] = 0
    columns = fit_rates(cells, 0, labels)
    frequent = set(np.argsort(-np.bincount(labels), kind="stable")[:MAX_CLASSES])
    assert {column.label for column in columns} == frequent
    three = fit_rates(*[cells, 0], labels % 3)
    assert [column.label for column in three] == [0, 1, 2]


def test_the_state_is_bounded():
    cells, labels = drawn(40_000, 10_000)
    (column,) = fit_rates(cells, 0, labels)
    assert len(column.rates) == MAX_RATES
    assert len(pickle.dumps(column)) < 200_000


@pytest.mark.parametrize("num_categories", [MIN_CATEGORIES, MIN_CATEGORIES + 1, 300])
def test_preprocessing_adds_rates_to_columns_of_many_categories(num_categories):
    cells, labels = drawn(3000, num_categories)
    frame = pd.DataFrame({"a": cells, "b": np.arange(3000.0)})
    preprocessor = TablePreprocessor()
    matrix = preprocessor.fit_transform(frame, labels)
    kinds = [type(column).__name__ for column in preprocessor.used]
    if num_categories <= MIN_CATEGORIES:
        assert kinds == ["CategoryColumn", "NumericColumn"]
        np.testing.assert_array_equal(matrix, preprocessor.transform(frame))
        return
    assert kinds == ["CategoryColumn", "RateColumn", "NumericColumn"]
    assert preprocessor.categorical.tolist() == [True, False, False]
    queries = preprocessor.transform(frame)
    np.testing.assert_array_equal(matrix[:, [0, 2]], queries[:, [0, 2]])
    rates = preprocessor.used[1].cross_fitted(labels, cells).astype(np.float32)
    np.testing.assert_array_equal(matrix[:, 1], rates)
    assert (matrix[:, 1] != queries[:, 1]).any()


@pytest.mark.parametrize(("num_categories", "least"), [(60, 0.75), (1000, 0.7)])
def test_a_label_in_many_categories_is_learnt(num_categories, least):
    cells, labels = drawn(6000, num_categories)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": cells, "b": rng.normal(size=6000)})
    classifier = RandomFeatureRidge(SMALL, n_estimators=2).fit(frame[:4000], labels[:4000])
    assert classifier.score(frame[4000:], labels[4000:]) > least


def test_identifiers_do_not_fool_the_classifier():
    rng = np.random.default_rng(0)
    values = rng.normal(size=1200)
    labels = (values + 0.3 * rng.normal(size=1200) > 0).astype(int)
    frame = pd.DataFrame({"id": names(np.arange(1200)), "b": values})
    classifier = RandomFeatureRidge(SMALL, n_estimators=2)
    with pytest.warns(UserWarning, match="'id' has 800 categories in 800 rows.*drop it"):
        classifier.fit(frame[:800], labels[:800])
    assert classifier.score(frame[800:], labels[800:]) > 0.85
