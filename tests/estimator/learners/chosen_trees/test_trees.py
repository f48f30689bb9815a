"""Trees as arrays: rows fall where they fell while the trees grew."""

import numpy as np
import pytest
import torch
from estimator.learners.chosen_trees.tables import ruled_table

from tabicl_linear.estimator.learners.chosen_trees import boosting
from tabicl_linear.estimator.learners.chosen_trees.boosting import binned, grow, midway
from tabicl_linear.estimator.learners.chosen_trees.trees import side_by_side
from tabicl_linear.kernels import tree_growth

FEW = 7


@pytest.fixture
def few(monkeypatch):
    """Trees are followed and held one by one, so that few of them tell what many would."""
    monkeypatch.setattr(boosting, "NUM_TREES", FEW)


def grown(rows, seed=1, **table):
    cells, labels = ruled_table(rows, **table)
    z = torch.from_numpy(cells)
    return z, grow(z, torch.from_numpy(labels), num_classes=3, seed=seed).trees


@pytest.mark.parametrize(("rows", "values"), [(50, 3), (50, 50), (1000, 1000), (2000, 5)])
def test_numbers_keep_the_order_of_values(rows, values):
    z = torch.randn(values, generator=torch.Generator().manual_seed(0))[torch.arange(rows) % values]
    cells = binned(z[:, None])
    order = z.argsort()
    numbers = cells.numbers[0, order].long()
    assert (numbers.diff() >= 0).all()
    alike = z[order].diff() == 0
    assert (numbers.diff()[alike] == 0).all()
    assert len(numbers.unique()) == min(values, boosting.NUMBERS)
    assert (cells.lowest[0, numbers] <= z[order]).all()
    assert (cells.highest[0, numbers] >= z[order]).all()


@pytest.mark.usefixtures("few")
def test_rows_fall_into_the_leaves_they_fell_into_while_trees_grew(monkeypatch):
    fallen = []
    plain = boosting.grown_tree

    def watched(*arguments, **options):
        fallen.append(plain(*arguments, **options))
        return fallen[-1]

    monkeypatch.setattr(boosting, "grown_tree", watched)
    z, trees = grown(200)
    leaves = trees.of_rows(z)
    assert len(fallen) == len(trees.roots) == FEW
    assert leaves.unique().tolist() == list(range(trees.num_leaves))
    for tree, found in zip(leaves.T, fallen, strict=True):
        assert torch.equal(tree[:, None] == tree, found.nodes[:, None] == found.nodes)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("at_once", [1, 7, 200])
def test_rows_fall_alike_however_many_are_followed_together(monkeypatch, at_once):
    z, trees = grown(30)
    expected = trees.of_rows(z)
    monkeypatch.setattr(tree_growth, "ROWS_AT_ONCE", at_once)
    assert torch.equal(trees.of_rows(z), expected)
    assert trees.of_rows(z[:0]).shape == (0, FEW)


def test_steps_are_those_of_boosting_and_of_lacking_classes_none():
    cells, labels = ruled_table(300)
    z, y = torch.from_numpy(cells), torch.from_numpy(labels)
    trees, steps = grow(z, y, num_classes=4, seed=0)
    assert steps.shape == (trees.num_leaves, 4)
    assert not steps[:, 3].any()
    start = torch.bincount(y).div(len(y)).log()
    logits = start + steps[trees.of_rows(z).long()].sum(1)[:, :3]
    loss = torch.nn.functional.cross_entropy(logits, y)
    # One in ten labels is drawn at random, and trees know these rows.
    assert loss < 0.3 * torch.nn.functional.cross_entropy(start.expand_as(logits), y)


@pytest.mark.parametrize("most", [20, 1000])
def test_projections_of_many_classes_choose_as_good_questions(monkeypatch, most):
    """Forty classes along one column, which the other three tell nothing of."""
    monkeypatch.setattr(boosting, "MOST_RESIDUALS", most)
    cells = np.random.default_rng(0).normal(size=(800, 4)).astype(np.float32)
    labels = cells[:, 2].argsort().argsort() // 20
    trees, _ = grow(torch.from_numpy(cells), torch.from_numpy(labels), num_classes=40, seed=0)
    asked = trees.columns[trees.roots.long()]
    assert (asked == 2).float().mean() > 0.4  # half of them may


@pytest.mark.usefixtures("few")
def test_steps_are_the_same_however_rows_are_added(monkeypatch):
    cells, labels = ruled_table(120)
    every = []
    for most in (0, 20):
        monkeypatch.setattr(boosting, "MANY_NUMBERS", most)
        args = torch.from_numpy(cells), torch.from_numpy(labels)
        every.append(grow(*args, num_classes=3, seed=0).steps)
    assert torch.equal(*every)


@pytest.mark.usefixtures("few")
def test_trees_side_by_side_are_the_same_trees():
    z, one = grown(120)
    _, other = grown(90, seed=2)
    _, third = grown(3)
    parts = [one, other, third]
    both = side_by_side(parts)
    first = [0, one.num_leaves, one.num_leaves + other.num_leaves]
    expected = [part.of_rows(z) + at for part, at in zip(parts, first, strict=True)]
    assert torch.equal(both.of_rows(z), torch.cat(expected, dim=1))
    assert both.num_leaves == sum(part.num_leaves for part in parts)


def test_a_value_next_to_a_threshold_stays_on_its_side():
    """Neighbours in float32: their middle has no float32 of its own."""
    low = np.float32([1.0, 2.0, -np.inf])
    high = np.nextafter(low, np.float32(4.0))
    cut = midway(low[:2], high[:2])
    assert (low[:2] <= cut).all()
    assert (cut < high[:2]).all()
    with np.errstate(all="raise"):  # the number next to 0 underflows
        assert midway(np.float32([-1.0]), np.float32([1.0])) == 0


@pytest.mark.usefixtures("few")
def test_trees_without_a_question_have_one_leaf_each():
    z, trees = grown(3)
    assert trees.depth == 0
    assert trees.of_rows(z[:2]).unique(dim=0).tolist() == [list(range(FEW))]
