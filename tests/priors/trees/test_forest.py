import numpy as np
import pytest
import torch

from tabicl_linear.priors.trees.forest import (
    GRID,
    Columns,
    Trees,
    _descend,
    _grow,
    _plant,
    _Splits,
    _thresholds,
    sum_of_trees,
)

ROWS = 500


def trees(task, depth, *, outputs=1, **fields):
    t = len(task)
    given = {"scale": 1.0, "level_scale": 1.0, "focus": 0.0, "spread": 1.0, **fields}
    return Trees(
        task=np.array(task),
        depth=np.array(depth),
        num_outputs=np.full(t, outputs),
        **{name: np.full(t, value, dtype=float) for name, value in given.items()},
    )


def columns(tasks=1, slots=3, seed=0):
    values = torch.randn(tasks * slots, ROWS, generator=torch.Generator().manual_seed(seed))
    rows = torch.arange(tasks * slots).view(tasks, slots)
    return Columns(values, rows, torch.ones(tasks, slots))


def sums(columns, trees, seed=0):
    (total,) = sum_of_trees(columns, trees, torch.Generator().manual_seed(seed)).values()
    return total


@pytest.mark.parametrize("depth", [1, 2, 5, 8])
def test_a_tree_has_one_value_in_each_of_at_most_two_to_the_depth_leaves(depth):
    for spread in (0.3, 1.0):
        leaves = len(sums(columns(), trees([0], [depth], spread=spread)).unique())
        assert 2 ** (depth - 2) < leaves <= 2**depth
    # Thresholds near the middle of a node leave no leaf without rows where there are enough.
    assert depth > 5 or len(sums(columns(), trees([0], [depth], spread=0.3)).unique()) == 2**depth


@pytest.mark.parametrize("seed", range(5))
def test_leaves_are_boxes_that_do_not_overlap(seed):
    """Between the rows of a leaf, in every column, lie no rows of another: it is axis-aligned."""
    table = columns(seed=seed)
    label = sums(table, trees([0], [5]), seed).flatten()
    boxes = [table.values[:, label == value] for value in label.unique()]
    low = torch.stack([box.amin(1) for box in boxes])
    high = torch.stack([box.amax(1) for box in boxes])
    apart = (low[:, None] > high[None]) | (high[:, None] < low[None])
    assert (apart.any(2) | torch.eye(len(boxes), dtype=torch.bool)).all()


def test_thresholds_are_values_of_rows():
    table = columns(slots=1)
    value = table.values[0]
    label = sums(table, trees([0], [1])).flatten()
    left = label == label[value.argmin()]
    threshold = value[left].max()
    assert threshold < value[~left].min()
    # The same draw makes the grid first: the largest value on the left is one of it.
    assert (_thresholds(table.values, torch.Generator().manual_seed(0)) == threshold).any()


def test_the_sum_over_trees_is_that_of_the_single_trees_in_structure():
    """Two trees of depth 1 on one column make at most three steps, one tree two."""
    table = columns(slots=1)
    assert len(sums(table, trees([0], [1])).unique()) == 2
    assert len(sums(table, trees([0, 0], [1, 1])).unique()) == 3


def test_a_tree_of_scale_zero_adds_nothing():
    table = columns()
    assert len(sums(table, trees([0, 0], [3, 3], scale=[1.0, 0.0])).unique()) <= 8
    assert not sums(table, trees([0], [3], scale=0.0)).any()


def test_rows_with_equal_cells_have_exactly_equal_sums():
    table = columns()
    twice = table._replace(values=torch.cat([table.values, table.values], 1))
    total = sums(twice, trees([0] * 30, [6] * 20 + [4] * 10))
    assert torch.equal(total[:, :ROWS], total[:, ROWS:])


def test_trees_serve_their_own_task():
    table = columns(tasks=3)
    total = sums(table, trees([0, 2, 2], [4, 4, 3]))
    assert not total[1].any()
    assert len(total[0].unique()) <= 16
    assert len(total[2].unique()) > 16


def test_slots_without_weight_are_never_asked():
    table = columns()
    table = table._replace(weights=torch.tensor([[0.0, 1.0, 0.0]]))
    moved = table.values.clone()
    moved[[0, 2]] = 0.0
    both = [sums(table._replace(values=v), trees([0], [4])) for v in (table.values, moved)]
    assert torch.equal(*both)
    assert len(both[0].unique()) > 8


def test_outputs_of_different_widths_are_kept_apart():
    table = columns(tasks=2)
    mixed = trees([0, 1, 0, 1], [4, 4, 3, 3])._replace(num_outputs=np.array([1, 3, 1, 3]))
    totals = sum_of_trees(table, mixed, torch.Generator().manual_seed(0))
    assert {width: total.shape for width, total in totals.items()} == {
        1: (2, ROWS, 1),
        3: (2, ROWS, 3),
    }
    assert totals[1][0].any()
    assert totals[3][1].any()
    assert not totals[1][1].any()
    assert not totals[3][0].any()


def test_leaf_values_are_gaussian_and_grow_with_the_levels():
    table = columns(tasks=400, slots=1)
    task, depth = np.arange(400), np.full(400, 2)
    first = sums(table, trees(task, depth, level_scale=0.0))[:, 0, 0]
    both = sums(table, trees(task, depth, level_scale=2.0))[:, 0, 0]
    assert first.std().item() == pytest.approx(1.0, rel=0.1)
    assert both.std().item() == pytest.approx(5**0.5, rel=0.1)


def test_children_have_the_thresholds_on_their_sides_of_the_parent_s():
    """Those of the slot that was asked: the parent's own is on neither side."""
    generator = torch.Generator().manual_seed(0)
    grove, nodes = _plant(columns(slots=2), trees([0], [3]), generator)
    at = torch.tensor([[[1]]])
    split = _Splits(at, torch.full_like(at, 20), at[..., 0], torch.zeros(1, 1))
    low, high = _grow(grove, nodes, split, level=0, left=1, generator=generator).inside
    assert low.tolist() == [[[0, 0], [0, 21]]]
    assert high.tolist() == [[[GRID, 20], [GRID, GRID]]]


@pytest.mark.parametrize(
    ("node", "threshold", "reached"),
    [([0, 0, 0], [2.0], [0, 0, 1]), ([0, 1, 1], [1.0, 2.0], [0, 2, 3])],
)
def test_a_value_at_the_threshold_goes_left(node, threshold, reached):
    rows = torch.zeros(1, len(threshold), dtype=torch.int64)
    split = _Splits(rows[..., None], rows[..., None], rows, torch.tensor([threshold]))
    result = _descend(torch.tensor([[1.0, 2.0, 3.0]]), split, torch.tensor([node]))
    assert result.tolist() == [reached]
