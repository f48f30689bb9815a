"""Regressions with one-hot leaves: rows left out by hand, and two ways to solve one regression."""

import pytest
import torch
from estimator.learners.chosen_trees.tables import ruled_table
from tolerances import RMS, assert_close

from tabicl_linear.estimator.learners.chosen_trees import solving
from tabicl_linear.estimator.learners.chosen_trees.boosting import grow
from tabicl_linear.estimator.learners.chosen_trees.solving import (
    LeafRows,
    LeafSums,
    RowRegression,
    SumRegression,
)

FIXED = 0.5
KINDS = [slice(0, 4), slice(4, 7)]
SOLVED_IN_FLOAT32 = 100 * RMS[torch.float32]
"""Regressions whose largest and smallest direction differ by a factor of a thousand."""


@pytest.fixture(scope="module")
def trees_and_rows():
    table, labels = ruled_table(150)
    trees = grow(
        torch.from_numpy(table[:70]), torch.from_numpy(labels[:70]), num_classes=3, seed=0
    ).trees
    rest = torch.from_numpy(table[70:])
    generator = torch.Generator().manual_seed(0)
    fixed = torch.randn(80, 7, generator=generator)
    r = torch.nn.functional.one_hot(torch.from_numpy(labels[70:]), 3).float()
    return trees, LeafRows(trees.of_rows(rest), fixed, r)


def dense(trees, rows):
    """All features of all rows, centred and scaled, float64."""
    leaves = torch.zeros(len(rows.targets), trees.num_leaves, dtype=torch.float64)
    leaves.scatter_(1, rows.leaves.long(), 1.0)
    kinds = [(leaves, 1.0), *((rows.fixed[:, kind].double(), FIXED) for kind in KINDS)]
    scaled = []
    for features, deviation in kinds:
        centred = features - features.mean(0)
        scaled.append(centred * deviation / centred.square().sum(1).mean().sqrt())
    return torch.cat(scaled, dim=1)


@pytest.mark.parametrize("penalty", [0.1, 3.0])
def test_rows_left_out_are_predicted_by_solutions_without_them(trees_and_rows, penalty):
    trees, rows = trees_and_rows
    every = torch.arange(len(rows.targets))
    chosen = every[5::7]
    some = RowRegression(rows, trees.num_leaves, KINDS, chosen).solve(penalty, FIXED).left_out
    left_out = RowRegression(rows, trees.num_leaves, KINDS, every).solve(penalty, FIXED).left_out
    features, r = dense(trees, rows), rows.targets.double()
    expected = []
    for i in chosen:
        others = every != i
        f, y = features[others], r[others]
        mean, shares = f.mean(0), y.mean(0)
        f = f - mean
        added = penalty * (1 + len(KINDS) * FIXED**2)
        gram = f.T @ f + added * torch.eye(f.shape[1], dtype=f.dtype)
        weights = torch.linalg.solve(gram, f.T @ (y - shares))
        expected.append(shares + (features[i] - mean) @ weights)
    assert_close(left_out[chosen], torch.stack(expected), SOLVED_IN_FLOAT32)
    assert_close(some, torch.stack(expected), SOLVED_IN_FLOAT32)


@pytest.mark.parametrize("kinds", [KINDS, KINDS[:1]])
def test_sums_over_chunks_are_solved_as_products_of_rows(trees_and_rows, kinds):
    """Kinds of features that the sums lack are left out by both."""
    trees, rows = trees_and_rows
    asked = torch.arange(0, len(rows.targets), 3)
    num_fixed = kinds[-1].stop
    summed = rows.first_fixed(num_fixed)
    of_rows = RowRegression(summed, trees.num_leaves, kinds, asked).solve(0.3, FIXED)
    chunks = [LeafRows(*parts) for parts in zip(*(part.split(33) for part in summed), strict=True)]
    taken = LeafRows(*(part[asked] for part in rows))
    first, more = (
        LeafSums.of([[rows] for rows in part], [trees.num_leaves])[0]
        for part in (chunks[:2], chunks[2:])
    )
    sums = first.plus(more)
    of_sums = SumRegression(sums, KINDS, taken).solve(0.3, FIXED)
    assert_close(of_rows.left_out, of_sums.left_out, SOLVED_IN_FLOAT32)
    one, other = of_rows.solution(), of_sums.solution()
    assert len(other.fixed) == 7
    assert not other.fixed[num_fixed:].any()
    other = other._replace(fixed=other.fixed[:num_fixed])
    for name, *parts in zip(one._fields, one, other, strict=True):
        assert_close(*parts, SOLVED_IN_FLOAT32, name)


def test_several_forests_are_summed_together_as_one_by_one(trees_and_rows, monkeypatch):
    monkeypatch.setattr(solving, "ROWS_COUNTED", 50)
    trees, rows = trees_and_rows
    table, labels = map(torch.from_numpy, ruled_table(150))
    other = grow(table[:40], labels[:40], num_classes=3, seed=1).trees
    assert other.num_leaves != trees.num_leaves
    of_both = [rows, rows._replace(leaves=other.of_rows(table[70:]))]
    chunks = [
        [LeafRows(*parts) for parts in zip(*(part.split(33) for part in each), strict=True)]
        for each in of_both
    ]
    together = LeafSums.of(zip(*chunks, strict=True), [trees.num_leaves, other.num_leaves])
    for sums, of_one, forest in zip(together, chunks, (trees, other), strict=True):
        (alone,) = LeafSums.of([[chunk] for chunk in of_one], [forest.num_leaves])
        assert sums.rows == alone.rows == 80
        assert all(torch.equal(*pair) for pair in zip(sums[1:], alone[1:], strict=True))


def test_the_solution_predicts_what_the_regression_says(trees_and_rows):
    trees, rows = trees_and_rows
    solution = (
        RowRegression(rows, trees.num_leaves, KINDS, torch.arange(80)).solve(0.3, FIXED).solution()
    )
    features, r = dense(trees, rows), rows.targets.double()
    added = 0.3 * (1 + len(KINDS) * FIXED**2)
    gram = features.T @ features + added * torch.eye(features.shape[1], dtype=features.dtype)
    expected = r.mean(0) + features @ torch.linalg.solve(gram, features.T @ (r - r.mean(0)))
    actual = (
        solution.leaves[rows.leaves.long()].sum(1) + rows.fixed @ solution.fixed + solution.offset
    )
    assert_close(actual, expected, SOLVED_IN_FLOAT32)


def test_weights_are_the_same_however_rows_are_added(trees_and_rows, monkeypatch):
    trees, rows = trees_and_rows
    trial = RowRegression(rows, trees.num_leaves, KINDS, torch.arange(80)).solve(0.3, FIXED)
    few = trial.solution().leaves
    monkeypatch.setattr(solving, "MANY_NUMBERS", 0)
    assert torch.equal(trial.solution().leaves, few)


def test_a_dual_whose_sum_is_rounding_makes_the_same_solution(trees_and_rows):
    trees, rows = trees_and_rows
    regression = RowRegression(rows, trees.num_leaves, KINDS, torch.arange(80))
    dual = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    shares = rows.targets.mean(0)
    one, other = (
        regression._features.solution(part, shares, FIXED)
        for part in (dual - dual.mean(0), dual - dual.mean(0) + 0.1)
    )
    for name, *parts in zip(one._fields, one, other, strict=True):
        assert_close(*parts, SOLVED_IN_FLOAT32, name)


def test_features_that_do_not_vary_count_for_nothing(trees_and_rows):
    trees, rows = trees_and_rows
    constant = rows._replace(fixed=torch.ones_like(rows.fixed))
    trial = RowRegression(constant, trees.num_leaves, KINDS, torch.arange(80)).solve(0.3, FIXED)
    assert not trial.solution().fixed.any()
    assert trial.left_out.isfinite().all()


def test_rows_without_a_solution_are_an_error(trees_and_rows):
    trees, rows = trees_and_rows
    regression = RowRegression(rows, trees.num_leaves, KINDS, torch.arange(80))
    with pytest.raises(torch.linalg.LinAlgError, match="penalties"):
        regression.solve(-3.0, FIXED)
