"""Regressions on the columns alone: rows left out by hand, two ways to make them, and their use."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from tolerances import RMS, assert_close

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.estimator.learners.chosen_trees import task_fit
from tabicl_linear.estimator.learners.chosen_trees.column_regression import ColumnRegression
from tabicl_linear.estimator.learners.chosen_trees.solving import LeafRows, LeafSums
from tabicl_linear.ridge_inputs import RidgeOptions

COLUMNS, CLASSES = 4, 3


@pytest.fixture
def rows():
    """Rows of four columns and three other features, in one leaf."""
    generator = torch.Generator().manual_seed(0)
    fixed = torch.randn(60, COLUMNS + 3, generator=generator)
    labels = torch.randint(CLASSES, (60,), generator=generator)
    targets = torch.nn.functional.one_hot(labels, CLASSES).float()
    return LeafRows(torch.zeros(60, 1, dtype=torch.int32), fixed, targets)


@pytest.mark.parametrize("penalty", [0.01, 3.0])
def test_rows_left_out_are_predicted_by_solutions_without_them(rows, penalty):
    places = torch.arange(2, 60, 5)
    trial = ColumnRegression.of_rows(rows, COLUMNS, places).solve(penalty, 1.0)
    x, r = rows.fixed[:, :COLUMNS].double(), rows.targets.double()
    added = penalty * (x - x.mean(0)).square().sum(1).mean()

    def solved(of):
        mean, shares = x[of].mean(0), r[of].mean(0)
        centred = x[of] - mean
        gram = centred.T @ centred + added * torch.eye(COLUMNS, dtype=x.dtype)
        weights = torch.linalg.solve(gram, centred.T @ (r[of] - shares))
        return weights, shares - mean @ weights

    every = torch.arange(60)
    for place, left_out in zip(places, trial.left_out, strict=True):
        weights, offset = solved(every != place)
        assert_close(left_out, x[place] @ weights + offset, RMS[torch.float64])
    weights, offset = solved(every >= 0)
    solution = trial.solution()
    assert solution.leaves.shape == (0, CLASSES)
    assert_close(solution.fixed, weights, RMS[torch.float64])
    assert_close(solution.offset, offset, RMS[torch.float64])


def test_sums_and_rows_make_the_same_and_sums_stay(rows):
    places = torch.arange(0, 60, 7)
    (sums,), left_out = LeafSums.of([[rows]], [1]), LeafRows(*(part[places] for part in rows))
    before = sums.gram.clone()
    one = ColumnRegression.of_rows(rows, COLUMNS, places).solve(0.1, 1.0)
    other = ColumnRegression.of_sums(sums, COLUMNS, left_out).solve(0.1, 1.0)
    assert_close(one.left_out, other.left_out, RMS[torch.float64])
    assert torch.equal(sums.gram, before)


@pytest.fixture
def predict(monkeypatch, few_trees):
    """Predicts 1,000 rows, of 30 columns that tell a little each, with the columns or without."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1300, 30))
    y = rng.random(1300) < 1 / (1 + np.exp(-x @ rng.normal(size=30) / 2))

    def predicted(*, with_columns, **options):
        with monkeypatch.context() as patches:
            if not with_columns:
                patches.setattr(task_fit, "_with_columns", lambda task, *_: task)
            model = RandomFeatureRidge(trees=True, n_estimators=1, **options).fit(x[:300], y[:300])
        return model.predict_proba(x[300:]), y[300:]

    return predicted


def test_what_many_columns_tell_a_little_each_is_predicted_better(predict):
    (shares, labels), (without, _) = (predict(with_columns=does) for does in (True, False))
    assert log_loss(labels, shares) < log_loss(labels, without) - 0.01


def test_options_without_single_values_do_without(predict):
    options = RidgeOptions(sets=({"tanh": 1.0},), num_tanh=8, calibration="logistic")
    one, other = (predict(with_columns=does, options=options)[0] for does in (True, False))
    assert np.array_equal(one, other)
