"""Rates of classes in the categories of two columns: where they tell more, and only there."""

import json

import numpy as np
import pandas as pd
import pytest

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.columns.joint_rates import FEWEST_ROWS, MOST_RATES, JointRateColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import MIN_CATEGORIES

pytestmark = pytest.mark.usefixtures("few_trees")

NUM_ROWS = 2000


def drawn(num_rows=NUM_ROWS, num_categories=20, *, chance=0.9, num_classes=2, seed=0):
    """Codes of three columns; the first two together tell the class, each alone says nothing."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(num_categories, size=(num_rows, 3))
    told = (codes[:, 0] + codes[:, 1]) % num_classes
    labels = np.where(rng.random(num_rows) < chance, told, rng.integers(num_classes, size=num_rows))
    return codes, labels


def table(codes):
    return pd.DataFrame([[f"c{code}" for code in row] for row in codes.tolist()], columns=[*"abc"])


def joint(frame, labels):
    fitted = TablePreprocessor(pairs=True).fit(frame, labels)
    return fitted, [column for column in fitted.columns if isinstance(column, JointRateColumn)]


def test_rates_are_shrunk_means_of_the_rows_of_both_categories():
    codes, labels = drawn()
    frame = table(codes)
    fitted, (column,) = joint(frame, labels)
    assert (column.name, column.other_name, column.label) == ("a", "b", 1)
    assert fitted.used[-1] is column
    for both, rows in pd.Series(labels).groupby([frame["a"], frame["b"]]):
        expected = (rows.sum() + column.strength * column.mean) / (len(rows) + column.strength)
        assert column.rates[json.dumps(list(both))] == pytest.approx(expected)
    unknown = column.encode(pd.Series(["c1", "x"]), pd.Series(["x", "c1"]))
    assert unknown.tolist() == [column.mean] * 2


def test_a_row_is_encoded_without_the_labels_of_its_fold_in_training():
    codes, labels = drawn(300, 15)
    cells = [pd.Series(codes[:, place].astype(str)) for place in range(2)]
    column = JointRateColumn("a", 0, "b", 1, 1, {}, 0.5, 1.0)
    rates = column.cross_fitted(labels, *cells)
    assert len(np.unique(rates)) > 3
    for row in range(0, 300, 7):
        flipped = labels.copy()
        flipped[row] = 1 - labels[row]
        assert column.cross_fitted(flipped, *cells)[row] == rates[row]
    codes, labels = drawn()
    fitted = TablePreprocessor(pairs=True)
    matrix = fitted.fit_transform(table(codes), labels)
    assert (matrix[:, -1] != fitted.transform(table(codes))[:, -1]).any()
    np.testing.assert_array_equal(matrix[:, :-1], fitted.transform(table(codes))[:, :-1])


@pytest.mark.parametrize("num_classes", [2, 3])
def test_columns_that_say_nothing_together_get_none(num_classes):
    rng = np.random.default_rng(1)
    codes, labels = drawn(chance=0, num_classes=num_classes, seed=1)
    assert joint(table(codes), labels)[1] == []
    told = np.where(rng.random(NUM_ROWS) < 0.8, codes[:, 0] % num_classes, labels)  # by one alone
    assert joint(table(codes), told)[1] == []


def test_a_preprocessor_of_single_columns_has_none_and_neither_have_few_rows():
    codes, labels = drawn()
    assert TablePreprocessor().fit(table(codes), labels).used[-1].name == "c"
    few = slice(FEWEST_ROWS - 1)
    assert joint(table(codes)[few], labels[few])[1] == []


def test_a_column_and_its_copy_count_once():
    codes, labels = drawn()
    frame = table(codes).assign(copied="t" + table(codes)["a"])
    assert [(column.name, column.other_name) for column in joint(frame, labels)[1]] == [("a", "b")]


def test_few_categories_get_none_and_many_classes_no_more_than_are_kept():
    codes, labels = drawn(num_categories=MIN_CATEGORIES)
    assert joint(table(codes), labels)[1] == []
    codes, labels = drawn(6000, 24, num_classes=8)
    columns = joint(pd.concat([table(codes)] * 2, axis=1).set_axis([*"abcdef"], axis=1), labels)[1]
    assert [column.label for column in columns] == list(range(8))
    assert len(columns) <= MOST_RATES


def test_codes_are_found_again_in_other_types_and_missing_is_a_category():
    codes, labels = drawn()
    cells = pd.DataFrame(codes[:, :2], columns=[*"ab"])
    frame = ("00" + cells.astype(str)).astype(object)
    frame.loc[codes[:, 0] == 3, "a"] = None
    fitted = TablePreprocessor([0, 1], pairs=True).fit(frame, labels)
    column = fitted.used[-1]
    assert '[null, "4"]' in column.rates
    expected = fitted.transform(frame)
    for types in ("float64", "Int64"):
        other = cells.astype(types).mask(cells["a"] == 3)
        other["b"] = cells["b"].astype(types)
        np.testing.assert_array_equal(fitted.transform(other)[:, -1], expected[:, -1])
    shuffled = fitted.transform(frame[["b", "a"]][::-1])
    np.testing.assert_array_equal(shuffled[::-1], expected)


def test_they_are_learnt_from_and_saved(tmp_path):
    codes, labels = drawn(3000)
    frame = table(codes)
    classifier = TabICLLinearClassifier(n_estimators=1).fit(frame[:2000], labels[:2000])
    assert classifier.score(frame[2000:], labels[2000:]) > 0.85
    path = tmp_path / "joint.state"
    classifier.save(path)
    loaded = TabICLLinearClassifier.load(path)
    np.testing.assert_array_equal(
        loaded.predict_proba(frame[2000:]), classifier.predict_proba(frame[2000:])
    )
