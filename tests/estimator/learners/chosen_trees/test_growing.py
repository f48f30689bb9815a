"""Trees to which rows are added: whatever the pieces, the same as at once."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from estimator.learners.chosen_trees.tables import ruled_table
from tolerances import ROUNDING, assert_close

from tabicl_linear.estimator.learners.chosen_trees import (
    boosting,
    context,
    divisions,
    growing,
    task_fit,
)
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import ChosenTrees
from tabicl_linear.kernels.state import num_bytes, tensors
from tabicl_linear.ridge_inputs import RidgeOptions

OPTIONS = RidgeOptions(num_tanh=8, num_cosine=8, num_trees=4, calibration="logistic")
CHUNK = 64
FIRST = 200
"""Rows that grow trees here."""
SUMMED_TWICE = 1e-5
"""Sums in another order, solved, and made logits by a search that stops at about as much."""


@pytest.fixture(scope="module", autouse=True)
def few_rows_are_many():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "NUM_TREES", 8)
        patch.setattr(divisions, "LEAST_GROWING", FIRST // 2)
        patch.setattr(growing, "MOST_SAMPLED", 150)
        yield


def learner(num_classes=3, *, grows=True):
    return ChosenTrees(OPTIONS, max_columns=8, num_classes=num_classes, grows=grows)


def grown(x, y, ends, num_classes=3, members=1, *, solved_between=False):
    """The solved state after pieces that end at `ends`, and the last rows.

    The first `FIRST` rows grow the trees; while there are fewer, all are fitted anew.
    """
    x = torch.from_numpy(x).expand(members, -1, -1)
    y = torch.from_numpy(y).expand(members, -1)
    categorical = torch.zeros(members, x.shape[2], dtype=torch.bool)
    state = None
    ends = sorted({*ends, min(FIRST, x.shape[1]), x.shape[1]})
    for start, end in pairwise((0, *ends)):
        held = state is None or state.growth is None
        first = 0 if held else start
        if state is not None and solved_between:
            state = learner(num_classes).solved(state)
        state = learner(num_classes).fit(
            x[:, first:end],
            y[:, first:end],
            categorical=categorical,
            rows_per_chunk=CHUNK,
            state=None if held else state,
        )
    return learner(num_classes).solved(state)


@pytest.fixture(scope="module")
def whole(few_rows_are_many):
    return grown(*ruled_table(700), ())


@pytest.fixture(scope="module")
def queries():
    table, labels = ruled_table(300, seed=7)
    return torch.from_numpy(table)[None], labels


@pytest.mark.parametrize(
    "ends", [(100, 450, 451), (FIRST,), (FIRST - 1, FIRST + 1), (1, 333), (600, 650)]
)
def test_pieces_are_the_whole(ends, whole, queries):
    """Cut before, at and after the last row that grows trees."""
    pieces = grown(*ruled_table(700), ends)
    assert pieces.growth.num_rows == whole.growth.num_rows == 700
    for one, other in zip(tensors(pieces), tensors(whole), strict=True):
        finite = other.isfinite()
        assert torch.equal(one.isfinite(), finite)
        if finite.any():
            assert_close(one[finite].double(), other[finite].double(), SUMMED_TWICE)
    logits, expected = (learner().predict(each, queries[0]) for each in (pieces, whole))
    assert_close(logits, expected, SUMMED_TWICE)


def test_pieces_that_are_solved_after_the_last_are_those_solved_each_time():
    once, each_time = (grown(*ruled_table(700), (450, 600), solved_between=s) for s in (0, 1))
    pairs = zip(tensors(once), tensors(each_time), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert learner().solved(once) is once


def test_sums_predict_as_what_is_solved_from_them(whole, queries):
    sums = whole._replace(predictors=())
    logits, expected = (learner().predict(state, queries[0]) for state in (sums, whole))
    assert torch.equal(logits, expected)


def test_fewer_rows_than_grow_trees_for_good_are_fitted_as_those_of_a_table(queries):
    x, y = ruled_table(FIRST - 1)
    state = grown(x, y, ())
    assert state.growth is None
    at_once = learner(grows=False).fit(
        torch.from_numpy(x)[None],
        torch.from_numpy(y)[None],
        categorical=torch.zeros(1, 5, dtype=torch.bool),
        rows_per_chunk=CHUNK,
    )
    expected = learner(grows=False).predict(at_once, queries[0])
    assert torch.equal(learner().predict(state, queries[0]), expected)


def test_sums_are_those_over_all_rows_that_have_not_grown_the_trees(whole):
    x, y = ruled_table(700)
    task, fitted = whole.growth.tasks[0], whole
    z = context.standardise(torch.from_numpy(x)[None], fitted.statistics)[0]
    r = torch.nn.functional.one_hot(torch.from_numpy(y), 3).double()
    assert torch.equal(task.counts, r.sum(0))
    for number, (grown_trees, sums) in enumerate(zip(task.grown, task.sums, strict=True)):
        draw, limits = learner().draws(2)[number // 2], fitted.thresholds[number // 2]
        fixed = draw.of_rows(torch.from_numpy(x)[None], limits, fitted.statistics)[0].double()
        fixed = fixed[:, : -OPTIONS.num_trees * 2**OPTIONS.tree_depth]
        leaves = torch.zeros(700, grown_trees.trees.num_leaves, dtype=torch.float64)
        leaves.scatter_(1, grown_trees.trees.of_rows(z).long(), 1.0)
        solves = torch.ones(700, dtype=torch.bool)
        solves[:FIRST] = ~task.growing[number]
        features, targets = torch.cat([leaves, fixed], dim=1)[solves], r[solves]
        assert sums.rows == len(features) == 600
        # Twice: moments are made in memory of their own, and the sums stay what they are.
        for moments in (sums.moments(), sums.moments()):
            centred, shares = features - features.mean(0), targets - targets.mean(0)
            assert_close(moments.mean[0], features.mean(0), ROUNDING)
            assert_close(moments.shares[0], targets.mean(0), ROUNDING)
            assert_close(moments.gram[0], centred.T @ centred, ROUNDING)
            assert_close(moments.cross[0], centred.T @ shares, ROUNDING)


def test_states_whose_sums_have_fixed_trees_go_on_with_them(monkeypatch, queries):
    """As files of version 0.2.0 have them."""

    def with_trees(rows, indices, forests, num_fixed):
        return task_fit.leaf_sums(rows, indices, forests, rows.kinds[-1].stop)

    x, y = ruled_table(700)
    with monkeypatch.context() as patch:
        patch.setattr(growing, "leaf_sums", with_trees)
        expected = grown(x, y, (450,))
        state = grown(x[:450], y[:450], ())
    later, labels = torch.from_numpy(x[None, 450:]), torch.from_numpy(y[None, 450:])
    state = learner().fit(later, labels, rows_per_chunk=CHUNK, state=state)
    for one, other in zip(tensors(learner().solved(state)), tensors(expected), strict=True):
        assert torch.equal(one, other)
    predictions = learner().predict(state, queries[0])
    assert torch.equal(predictions, learner().predict(expected, queries[0]))


def test_the_sample_is_spread_evenly_over_all_rows(whole):
    x, y = ruled_table(700)
    numbers = growing.sampled_rows(700)
    assert np.array_equal(numbers // 8, np.arange(len(numbers)))  # one of each eight
    assert len(numbers) in (87, 88)
    assert torch.equal(whole.growth.sampled_x[0], torch.from_numpy(x[numbers]))
    assert torch.equal(whole.growth.sampled_y[0], torch.from_numpy(y[numbers]))


@pytest.mark.parametrize("num_rows", [1, 150, 151, 299, 300, 301, 4800, 10**9])
def test_samples_hold_all_rows_of_sparser_ones(num_rows):
    numbers = growing.sampled_rows(num_rows)
    assert min(num_rows, 75) <= len(numbers) <= 150
    assert (np.diff(numbers) > 0).all()
    assert numbers[-1] < num_rows
    later = growing.sampled_rows(3 * num_rows)
    assert np.isin(later[later < num_rows], numbers).all()


@pytest.mark.parametrize("period", [2, 8, 24, 64])
def test_samples_of_rows_that_repeat_are_of_all_kinds(period, monkeypatch):
    """Every 2^k-th row would be of the same hours of a day, and calibrate all logits by these."""
    monkeypatch.setattr(growing, "MOST_SAMPLED", 2048)
    counts = np.bincount(growing.sampled_rows(100_000) % period, minlength=period)
    expected = counts.mean()
    assert np.abs(counts - expected).max() < 4 * np.sqrt(expected)


def test_more_rows_predict_better_and_take_no_more_room(queries):
    """Over three tables, as a single one of 300 rows may be a lucky one."""
    labels, losses = torch.from_numpy(queries[1]), []
    for seed in range(3):
        x, y = ruled_table(4800, seed=seed)
        states = [grown(x[:rows], y[:rows], (FIRST,)) for rows in (300, 4800)]
        assert num_bytes(states[0]) == pytest.approx(num_bytes(states[1]), rel=0.01)
        logits = [learner().predict(state, queries[0])[0] for state in states]
        losses.append([torch.nn.functional.cross_entropy(each, labels) for each in logits])
    few, many = np.mean(losses, axis=0)
    assert many < few - 0.02


def test_labels_of_later_rows_are_not_seen_where_they_judge():
    """Noise is found to be noise, from the first rows and from later ones."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(900, 5)).astype(np.float32), rng.integers(2, size=900)
    state = grown(x, y, (150, 400), num_classes=2)
    more = torch.from_numpy(rng.normal(size=(1, 200, 5)).astype(np.float32))
    shares = learner(2).predict(state, more).softmax(-1)
    assert (shares - 0.5).abs().mean() < 0.1


def test_classes_may_come_late(queries):
    x, y = ruled_table(700)
    order = np.argsort(y == 2, kind="stable")
    few = grown(x[order][:400], y[order][:400], (FIRST,))
    assert learner().predict(few, queries[0]).softmax(-1)[..., 2].max() < 1e-9
    all_rows = grown(x[order], y[order], (FIRST, 400))
    predictions = learner().predict(all_rows, queries[0])[0].argmax(1).numpy()
    assert (predictions[queries[1] == 2] == 2).mean() > 0.3


def test_one_class_comes_first():
    x, y = ruled_table(500)
    order = np.argsort(y != 0, kind="stable")
    state = grown(x[order][:60], y[order][:60], ())
    assert learner().predict(state, torch.from_numpy(x)[None]).softmax(-1)[..., 0].min() > 0.99
    state = grown(x[order], y[order], (60,))
    assert learner().predict(state, torch.from_numpy(x)[None]).isfinite().all()


def test_members_are_grown_apart(whole, queries):
    both = grown(*ruled_table(700), (250,), members=2)
    logits = learner().predict(both, queries[0].expand(2, -1, -1))
    assert_close(logits[1:], learner().predict(whole, queries[0]), SUMMED_TWICE)
