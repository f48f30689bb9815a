"""Linear scores of wide tables: ridge regressions, honest in training, of what has many columns."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge
from tolerances import ROUNDING, assert_close

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.estimator.columns import linear_scores
from tabicl_linear.estimator.columns.linear_scores import FEWEST_COLUMNS, PENALTIES, fit_scores
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import MAX_CLASSES, NUM_FOLDS

pytestmark = pytest.mark.usefixtures("few_trees")


def drawn(num_rows, num_columns=300, *, num_classes=3, difference=0.3, seed=0):
    """Every column differs a little between the classes."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(num_classes), rng.integers(num_classes, size=num_rows)])
    labels = labels[:num_rows]
    means = difference * rng.normal(size=(num_classes, num_columns))
    matrix = means[labels] + rng.normal(size=(num_rows, num_columns))
    return matrix.astype(np.float32), labels


def all_numbers(matrix):
    return np.ones(matrix.shape[1], dtype=bool)


def ridges(matrix, labels):
    """The regressions of scikit-learn with each penalty, of centred columns and classes."""
    x = matrix.astype(np.float64) - matrix.mean(axis=0, dtype=np.float64)
    hits = np.eye(labels.max() + 1)[labels]
    # The mean of the diagonal of the smaller one of the two matrices.
    size = np.square(x).sum() / min(x.shape)
    return x, hits, [Ridge(penalty * size, fit_intercept=False) for penalty in PENALTIES]


@pytest.mark.parametrize("num_rows", [60, 400])
def test_scores_are_those_of_a_ridge_regression(num_rows):
    matrix, labels = drawn(num_rows)
    scores, _ = fit_scores(matrix, labels, all_numbers(matrix))
    x, hits, models = ridges(matrix, labels)
    shares = hits.mean(axis=0)
    expected = [model.fit(x, hits - shares).predict(x) + shares for model in models]
    actual = torch.from_numpy(scores.of(matrix)).double()
    errors = [(actual - torch.from_numpy(each)).abs().max() for each in expected]
    best = int(np.argmin(errors))
    assert_close(actual, torch.from_numpy(expected[best]), ROUNDING)
    # Alone or among others, a row has the same scores.
    assert np.array_equal(scores.of(matrix[:1]), scores.of(matrix)[:1])


@pytest.mark.parametrize("num_rows", [60, 400])
def test_a_training_row_is_scored_by_rows_of_other_folds(num_rows):
    matrix, labels = drawn(num_rows)
    _, of_rows = fit_scores(matrix, labels, all_numbers(matrix))
    # Another row far off changes the scores of all rows but those of its own fold.
    moved = matrix.copy()
    moved[0] += 1e-2
    _, after = fit_scores(moved, labels, all_numbers(matrix))
    moves = np.abs(after - of_rows).max(axis=1)[1:]
    own_fold = np.sort(moves)[: num_rows // NUM_FOLDS - 1]
    assert own_fold.max() < np.sort(moves)[num_rows // NUM_FOLDS]
    assert np.mean(of_rows.argmax(axis=1) == labels) > 0.5


def test_scores_of_long_tables_are_fitted_to_some_of_their_rows(monkeypatch):
    matrix, labels = drawn(400)
    monkeypatch.setattr(linear_scores, "MAX_CELLS", 200 * matrix.shape[1])
    scores, of_rows = fit_scores(matrix, labels, all_numbers(matrix))
    are_plain = (of_rows == scores.of(matrix)).all(axis=1)
    assert are_plain.sum() == 200
    rest = np.flatnonzero(~are_plain)
    np.testing.assert_allclose(scores.shares, np.bincount(labels[rest]) / 200)


def test_columns_of_noise_have_no_scores_or_harmless_ones():
    for seed in range(10):
        matrix, labels = drawn(200, difference=0.0, seed=seed)
        fitted = fit_scores(matrix, labels, all_numbers(matrix))
        if fitted is not None:
            _, of_rows = fitted
            hits = np.eye(3)[labels]
            # A mean of the other rows that leaves out a row's own label would tell it.
            assert abs(np.corrcoef(of_rows.ravel(), hits.ravel())[0, 1]) < 0.25


def test_a_table_in_which_few_columns_tell_has_no_scores():
    matrix, labels = drawn(200, difference=0.0)
    matrix[:, :20] += drawn(200, 20, difference=2.0)[0]
    assert fit_scores(matrix, labels, all_numbers(matrix)) is None


def test_missing_values_count_as_the_mean_and_other_columns_for_nothing():
    matrix, labels = drawn(300, 305)
    are_numbers = all_numbers(matrix)
    are_numbers[-5:] = False
    matrix[::3, 4] = np.nan
    scores, _ = fit_scores(matrix, labels, are_numbers)
    others = matrix.copy()
    others[:, -5:] = 7.0
    others[::3, 4] = np.nanmean(matrix[:, 4])
    np.testing.assert_allclose(scores.of(others), scores.of(matrix), atol=ROUNDING)
    few = are_numbers & (np.arange(matrix.shape[1]) < FEWEST_COLUMNS - 1)
    assert fit_scores(matrix, labels, few) is None


def test_columns_that_do_not_vary_in_the_rows_judged_are_no_reason_to_stop():
    matrix, labels = drawn(300)
    matrix[:, 3], matrix[:, 4] = 0.0, np.nan
    matrix[5, 4] = 1.0
    scores, of_rows = fit_scores(matrix, labels, all_numbers(matrix))
    assert np.isfinite(of_rows).all()
    assert np.isfinite(scores.coefficients).all()
    matrix[:] = np.nan
    assert fit_scores(matrix, labels, all_numbers(matrix)) is None


def test_most_frequent_classes_have_scores():
    matrix, labels = drawn(300, num_classes=MAX_CLASSES + 4, difference=1.0)
    scores, of_rows = fit_scores(matrix, labels, all_numbers(matrix))
    assert of_rows.shape == (300, MAX_CLASSES)
    assert len(scores.shares) == MAX_CLASSES
    matrix, labels = drawn(300, num_classes=2)
    _, of_rows = fit_scores(matrix, labels, all_numbers(matrix))
    assert of_rows.shape == (300, 1)


def test_the_matrix_of_a_wide_table_ends_in_its_scores():
    matrix, labels = drawn(200)
    frame = pd.DataFrame(matrix).add_prefix("x")
    frame["x0"] = np.where(matrix[:, 0] > 0, "high", "low")
    frame["x1"] = matrix[:, 1] > 0
    frame["colour"] = np.array(["red", "green", "blue"])[np.arange(200) % 3]
    preprocessor = TablePreprocessor()
    of_rows = preprocessor.fit_transform(frame, labels)
    plain = TablePreprocessor()
    without = plain.fit_transform(frame)
    assert np.array_equal(of_rows[:, :-3], without)
    assert np.array_equal(preprocessor.transform(frame)[:, :-3], without)
    assert preprocessor.categorical.tolist() == [*plain.categorical.tolist(), *[False] * 3]
    weights = np.abs(preprocessor.linear_scores.coefficients).max(axis=1)
    are_summed = dict(zip([column.name for column in preprocessor.used], weights > 0, strict=True))
    assert [name for name, is_summed in are_summed.items() if not is_summed] == ["colour"]
    # Learnt again from a narrower table, none are left over.
    assert preprocessor.fit(frame.iloc[:, :9], labels).linear_scores is None


@pytest.mark.filterwarnings("ignore:The table has .* usable columns")
def test_what_hundreds_of_columns_say_together_is_learnt(tmp_path):
    x, y = drawn(1200, 300, num_classes=2, difference=0.15, seed=3)
    classifier = RandomFeatureRidge(random_state=0).fit(x[:200], y[:200])
    assert classifier.score(x[200:], y[200:]) > 0.75
    classifier.save(tmp_path / "state.tabicl")
    loaded = RandomFeatureRidge.load(tmp_path / "state.tabicl")
    assert np.array_equal(loaded.predict_proba(x[200:]), classifier.predict_proba(x[200:]))


@pytest.mark.filterwarnings("ignore:The table has .* usable columns")
def test_scores_stay_as_rows_are_added():
    x, y = drawn(300, num_classes=2, seed=3)
    classifier = TabICLLinearClassifier(n_estimators=1, random_state=0)
    for rows in (slice(150), slice(150, 300)):
        classifier.partial_fit(x[rows], y[rows], classes=[0, 1])
    at_once = TabICLLinearClassifier(n_estimators=1, random_state=0).fit(x, y)
    assert at_once.predict_proba(x[:5]).shape == (5, 2)
    np.testing.assert_array_equal(classifier.predict(x), at_once.predict(x))
