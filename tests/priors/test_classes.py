import numpy as np
import pytest
import torch

from tabicl_linear.priors import Tasks, classes


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_bins_count_the_boundaries_below():
    values = torch.tensor([[-1.0, 0.0, 0.5, 2.0, torch.nan, torch.inf]])
    boundaries = torch.tensor([[0.5, 0.0, torch.nan, torch.inf]])
    assert classes.bin_by_boundaries(values, boundaries).tolist() == [[0, 0, 1, 2, 0, 2]]


def test_boundaries_beyond_the_number_of_bins_are_infinite():
    values = torch.arange(10.0).repeat(2, 1)
    rows = torch.tensor([[3, 5, 7]]).expand(2, -1)
    found = classes.rank_boundaries(values, rows, np.array([2, 4]))
    assert found.tolist() == [[3, torch.inf, torch.inf], [3, 5, 7]]


def test_randomised_ids_are_a_permutation_of_each_task_s_ids(generator):
    num_ids = np.array([2, 5, 10] * 400)
    ids = torch.arange(10).expand(1200, -1).minimum(torch.as_tensor(num_ids - 1)[:, None])
    out = classes.randomise_ids(ids, num_ids, np.zeros(1200), generator=generator)
    for row, k in zip(out, num_ids, strict=True):
        assert sorted(row[:k].tolist()) == list(range(k))
    first = torch.bincount(out[1::3, 0], minlength=5) / 400
    assert (first - 0.2).abs().max() < 0.08


def test_ordered_ids_are_kept_or_reversed_evenly(generator):
    ids = torch.arange(5).expand(1000, -1)
    out = classes.randomise_ids(ids, np.full(1000, 5), np.ones(1000), generator=generator)
    kept = (out == ids).all(1)
    assert (kept | (out == 4 - ids).all(1)).all()
    assert kept.float().mean().item() == pytest.approx(0.5, abs=0.06)


def test_reindexing_closes_gaps_and_keeps_order():
    y = torch.tensor([[4, 1, 4, 7], [0, 0, 2, 2]])
    assert classes.reindex_classes(y, 8).tolist() == [[1, 0, 1, 2], [0, 0, 1, 1]]
    assert classes.count_classes(y, 8)[0].tolist() == [0, 1, 0, 0, 2, 0, 0, 1]


def test_rotation_is_uniform_over_the_classes_present(generator):
    y = torch.tensor([0, 1, 2, 2]).expand(3000, -1)
    out = classes.rotate_classes(y, generator)
    assert ((out - y) % 3 == (out[:, :1] - y[:, :1]) % 3).all()
    assert (torch.bincount(out[:, 0]) / 3000 - 1 / 3).abs().max() < 0.03


@pytest.mark.parametrize("num_context", [4, 5, 20, 39])
def test_every_class_is_covered_and_every_row_used_once(num_context, generator):
    y = torch.cat([torch.arange(4), torch.zeros(36, dtype=torch.long)]).expand(500, -1)
    order = classes.covering_order(y, num_context, 6, generator)
    assert (order.sort(1).values == torch.arange(40)).all()
    context = y.gather(1, order)[:, :num_context]
    assert (classes.count_classes(context, 6)[:, :4] > 0).all()


def test_covering_order_is_uniform_where_covering_is_certain(generator):
    y = torch.tensor([0, 1] * 20).expand(4000, -1)
    order = classes.covering_order(y, 30, 2, generator)
    for place in (0, 29, 30, 39):
        share = torch.bincount(order[:, place], minlength=40) / 4000
        assert (share - 1 / 40).abs().max() < 0.012


def test_rows_of_a_rare_class_are_alike(generator):
    y = torch.tensor([1, 1, 1] + [0] * 37).expand(6000, -1)
    order = classes.covering_order(y, 5, 2, generator)
    in_context = torch.zeros(6000, 40).scatter_(1, order[:, :5], 1.0).mean(0)
    assert (in_context[:3] - in_context[:3].mean()).abs().max() < 0.03
    assert (in_context[3:] - in_context[3:].mean()).abs().max() < 0.03
    assert in_context[:3].sum() >= 1


def test_reordering_moves_rows_together(generator):
    y = torch.arange(6).expand(2, -1)
    x = torch.stack([y, 10 * y], -1).float()
    order = torch.stack([torch.randperm(6, generator=generator) for _ in range(2)])
    out = classes.reorder_rows(Tasks(x, y, torch.zeros(2, 2, dtype=torch.bool)), order)
    assert torch.equal(out.y, order)
    assert torch.equal(out.x, torch.stack([order, 10 * order], -1).float())
