"""The learner: its state, its pieces and its errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from estimator.learners.chosen_trees.tables import ruled_table
from tolerances import ROUNDING, assert_close

from tabicl_linear.estimator.learners.chosen_trees import boosting, cross_fitting, task_fit
from tabicl_linear.estimator.learners.chosen_trees import divisions as divisions_module
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import ChosenTrees
from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.ridge_inputs import RidgeOptions

OPTIONS = RidgeOptions(num_tanh=8, num_cosine=8, num_trees=4, calibration="logistic")
CHUNK = 1000
ROUNDS = 2


def learner(num_classes=3, options=OPTIONS):
    return ChosenTrees(options, max_columns=8, num_classes=num_classes)


def fitted(num_rows, rows_per_chunk=CHUNK, members=1, options=OPTIONS):
    table, labels = ruled_table(num_rows)
    x = torch.from_numpy(table).expand(members, -1, -1)
    y = torch.from_numpy(labels).expand(members, -1)
    categorical = torch.zeros(members, 5, dtype=torch.bool)
    trees = learner(options=options)
    return trees.fit(x, y, categorical=categorical, rows_per_chunk=rows_per_chunk)


pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def state(few_trees):
    return fitted(300)


@pytest.fixture(scope="module")
def queries():
    table, labels = ruled_table(200, seed=7)
    return torch.from_numpy(table)[None], labels


def test_rules_of_single_columns_are_learnt(state, queries):
    x, labels = queries
    logits = learner().predict(state, x)[0]
    assert logits.dtype == torch.float64
    assert (logits.argmax(1).numpy() == labels).mean() > 0.8


def test_few_rows_grow_no_trees(queries):
    state = fitted(49)
    assert state.predictors[0].trees is None
    assert learner().predict(state, queries[0]).isfinite().all()


def test_pieces_are_the_whole(state, queries):
    x, _ = queries
    whole = learner().predict(state, x)
    pieces = torch.cat([learner().predict(state, part) for part in x.split(64, dim=1)], dim=1)
    assert_close(pieces, whole, ROUNDING)
    in_chunks = learner().predict(fitted(300, rows_per_chunk=37), x)
    assert_close(in_chunks, whole, 1e-4)


@pytest.mark.parametrize("at_once", [17, 64])
def test_rows_are_predicted_alike_however_many_together(monkeypatch, state, queries, at_once):
    whole = learner().predict(state, queries[0])
    monkeypatch.setattr(cross_fitting, "ROWS_AT_ONCE", at_once)
    assert_close(learner().predict(state, queries[0]), whole, ROUNDING)


def test_members_are_fitted_apart(state, queries):
    x, _ = queries
    both = fitted(300, members=2)
    logits = learner().predict(both, x.expand(2, -1, -1))
    assert_close(logits[1:], learner().predict(state, x), ROUNDING)


def test_missing_values_are_predicted(state, queries):
    x = queries[0].clone()
    x[0, ::3, 1] = torch.nan
    assert learner().predict(state, x).isfinite().all()


def test_absent_classes_are_impossible(queries):
    table, labels = ruled_table(100)
    state = learner(num_classes=5).fit(
        torch.from_numpy(table)[None],
        torch.from_numpy(labels)[None],
        categorical=torch.zeros(1, 5, dtype=torch.bool),
        rows_per_chunk=CHUNK,
    )
    shares = learner(num_classes=5).predict(state, queries[0]).softmax(-1)
    assert shares[..., 3:].max() < 1e-9


def test_long_tables_are_solved_from_sums_and_their_state_does_not_grow(monkeypatch, queries):
    monkeypatch.setattr(divisions_module, "LEAST_GROWING", 100)
    monkeypatch.setattr(divisions_module, "MOST_GROWING", 100)
    monkeypatch.setattr(divisions_module, "FEW_ROWS", 200)
    monkeypatch.setattr(task_fit, "FEW_ROWS", 200)
    monkeypatch.setattr(task_fit, "MOST_PRODUCTS", 150)
    short, long = fitted(400), fitted(1200)
    x, labels = queries
    logits = learner().predict(long, x)[0]
    assert (logits.argmax(1).numpy() == labels).mean() > 0.8
    assert num_bytes(long) == pytest.approx(num_bytes(short), rel=0.2)


def test_trees_that_are_grown_twice_are_solved_together(monkeypatch, queries):
    """Boosting is the mean of both, and neither is the other."""
    monkeypatch.setattr(divisions_module, "FEW_ROWS", 200)
    monkeypatch.setattr(task_fit, "FEW_ROWS", 200)
    grown = list[boosting.GrownTrees]()

    def grow(*arguments, **options):
        grown.append(boosting.grow(*arguments, **options))
        return grown[-1]

    monkeypatch.setattr(task_fit, "grow", grow)
    predictor = fitted(300).predictors[0]
    assert len(grown) == 8
    assert len(predictor.trees.roots) == 8 * boosting.NUM_TREES
    thresholds = [each.trees.thresholds for each in grown]
    assert_close(predictor.trees.thresholds, torch.cat(thresholds), ROUNDING)
    assert not torch.equal(thresholds[0], thresholds[1])
    steps = torch.cat([each.steps for each in grown]) / 8
    part = predictor.steps.norm() / steps.norm()
    assert_close(predictor.steps, part * steps, 1e-5)
    x, labels = queries
    assert (learner().predict(fitted(300), x)[0].argmax(1).numpy() == labels).mean() > 0.8


def test_sums_and_products_of_rows_give_the_same(monkeypatch, queries):
    """Of the features that both are solved with."""
    x, _ = queries
    options = replace(OPTIONS, sets=({"values": 1.0, "tanh": 1.0, "cosine": 1.0},))
    expected = learner(options=options).predict(fitted(300, options=options), x)
    monkeypatch.setattr(task_fit, "MOST_PRODUCTS", 10)
    actual = learner(options=options).predict(fitted(300, options=options), x)
    assert_close(actual, expected, 1e-3)


@pytest.mark.parametrize("kinds", [("values", "trees"), ("trees",)])
def test_long_contexts_do_without_fixed_trees(monkeypatch, queries, kinds):
    x, labels = queries
    options = replace(OPTIONS, sets=(dict.fromkeys(kinds, 1.0),))
    num_leaves = options.num_trees * 2**options.tree_depth

    def weights():
        return fitted(300, options=options).predictors[0].fixed.unflatten(0, (ROUNDS, -1))

    for module in (divisions_module, task_fit):
        monkeypatch.setattr(module, "FEW_ROWS", 10)
    assert weights()[:, -num_leaves:].any()
    monkeypatch.setattr(task_fit, "MOST_PRODUCTS", 10)
    of_values, of_leaves = weights().split([len(kinds[1:]) * 5 * 6, num_leaves], dim=1)
    assert not of_leaves.any()
    assert of_values.any() or kinds == ("trees",)
    logits = learner(options=options).predict(fitted(300, options=options), x)[0]
    assert (logits.argmax(1).numpy() == labels).mean() > 0.8


def test_labels_of_rows_left_out_are_not_seen():
    """OutOfFold evidence: noise is found to be noise."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(1, 400, 5)).astype(np.float32))
    y = torch.from_numpy(rng.integers(2, size=(1, 400)))
    categorical = torch.zeros(1, 5, dtype=torch.bool)
    noise = learner(2)
    state = noise.fit(x, y, categorical=categorical, rows_per_chunk=CHUNK)
    shares = noise.predict(state, torch.randn(1, 200, 5)).softmax(-1)
    assert (shares - 0.5).abs().mean() < 0.1
