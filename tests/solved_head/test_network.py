"""What features of a row may depend on."""

import pytest
import torch
from solved_head.tables import CLASSES, ROWS, context, features, network

from experiments.solved_head.cells import NUMBERS, cells
from experiments.solved_head.network import LearnedOptions
from tabicl_linear.errors import ConfigError


def test_the_label_of_a_row_changes_nothing_in_its_own_features():
    rows, made = context(), network()
    before = features(made, rows, rows.statistics().seen())
    for row in (0, 8, ROWS - 1):
        y = rows.y.clone()
        y[:, row] = (y[:, row] + 1) % CLASSES
        other = rows._replace(y=y)
        after = features(made, other, other.statistics().seen())
        same_fold = rows.fold[0] == rows.fold[0, row]
        assert torch.equal(after[:, same_fold], before[:, same_fold])
        assert (after[:, ~same_fold] != before[:, ~same_fold]).any(-1).all()


def test_the_order_of_rows_does_not_matter():
    rows, made = context(), network()
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    before = features(made, rows, rows.statistics().seen())
    moved = rows.rows(order)
    after = features(made, moved, moved.statistics().seen())
    torch.testing.assert_close(after, before[:, order], rtol=1e-5, atol=1e-6)


def test_the_order_of_columns_does_not_matter():
    rows, made = context(), network()
    order = torch.tensor([2, 0, 3, 1])
    moved = rows._replace(
        z=rows.z[..., order],
        present=rows.present[..., order],
        categorical=rows.categorical[:, order],
    )
    before = features(made, rows, rows.statistics().seen())
    after = features(made, moved, moved.statistics().seen())
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)


def test_queries_read_all_context_rows_and_are_independent_of_each_other():
    rows, made = context(), network()
    seen = rows.statistics().seen()
    queries = rows._replace(fold=None)
    together = features(made, queries, seen)
    alone = rows.rows(slice(5, 6))._replace(fold=None)
    torch.testing.assert_close(features(made, alone, seen), together[:, 5:6])
    y = rows.y.clone()
    y[:, 5] = (y[:, 5] + 1) % CLASSES
    changed = features(made, queries, rows._replace(y=y).statistics().seen())
    assert (changed[:, 5] != together[:, 5]).any()


def test_cells_are_finite_and_of_the_order_of_one():
    rows = context()
    rows.z[0, 0, 0] = 100.0
    features = cells(rows.z, rows.present, rows.categorical, rows.statistics().seen(), rows.fold)
    assert features.shape == (*rows.z.shape, NUMBERS)
    assert features.isfinite().all()
    assert features.abs().max() <= 10


def test_a_context_of_a_single_class_has_features():
    rows = context()
    rows = rows._replace(y=torch.zeros_like(rows.y))
    assert features(network(), rows, rows.statistics().seen()).isfinite().all()


@pytest.mark.parametrize("options", [{"dim": 0}, {"depth": 1.0}, {"dim": 10, "num_heads": 4}])
def test_impossible_sizes_are_refused(options):
    with pytest.raises(ConfigError, match=r"dim=|depth="):
        LearnedOptions(**options)
