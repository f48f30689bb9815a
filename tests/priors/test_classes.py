import numpy as np
import pytest
import torch

from tabicl_linear.priors import Tasks, classes


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_boundaries_beyond_the_number_of_bins_are_infinite():
    boundaries = torch.tensor([[3.0, 5.0, 7.0]]).expand(2, -1)
    result = classes.pad_boundaries(boundaries, np.array([2, 4]))
    assert result.tolist() == [[3, torch.inf, torch.inf], [3, 5, 7]]


def test_randomised_ids_are_a_permutation_of_each_task_s_ids(generator):
    num_ids = np.array([2, 5, 10] * 400)
    ids = torch.arange(10.0).expand(1200, -1).minimum(torch.as_tensor(num_ids - 1.0)[:, None])
    out = classes.randomise_ids(ids, num_ids, np.zeros(1200), generator=generator)
    for row, k in zip(out, num_ids, strict=True):
        assert sorted(row[:k].tolist()) == list(range(k))
    first = torch.bincount(out[1::3, 0], minlength=5) / 400
    assert (first - 0.2).abs().max() < 0.08


def test_ordered_ids_are_kept_or_reversed_evenly(generator):
    ids = torch.arange(5.0).expand(1000, -1)
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


def cover(y, num_context, num_classes, generator):
    """Labels and row numbers after rows of `y`, in a random order, are moved."""
    b, n = y.shape
    order = torch.rand(b, n, generator=generator).argsort(1)
    x = order.unsqueeze(-1).float()
    tasks = Tasks(x, y.gather(1, order), torch.zeros(b, 1, dtype=torch.bool))
    moved = classes.cover_classes(tasks, num_context, num_classes, generator)
    return moved.y, moved.x.squeeze(-1).long()


@pytest.mark.parametrize("num_context", [4, 5, 20, 39])
def test_every_class_is_covered_and_every_row_used_once(num_context, generator):
    y = torch.cat([torch.arange(4), torch.zeros(36, dtype=torch.long)]).expand(500, -1)
    labels, rows = cover(y, num_context, 6, generator)
    assert (rows.sort(1).values == torch.arange(40)).all()
    assert torch.equal(labels, y.gather(1, rows))
    assert (classes.count_classes(labels[:, :num_context], 6)[:, :4] > 0).all()


def test_rows_stay_where_the_context_shows_every_class(generator):
    y = torch.tensor([[0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 0]])
    x = torch.arange(6.0).repeat(2, 1).unsqueeze(-1)
    tasks = Tasks(x, y, torch.zeros(2, 1, dtype=torch.bool))
    moved = classes.cover_classes(tasks, 3, 2, generator)
    assert moved.x[0, :, 0].tolist() == list(range(6))
    assert 4 in moved.x[1, :3, 0].tolist()


def test_moved_rows_are_in_uniform_order(generator):
    # The one row of class 1 is moved into the context in a quarter of the tasks.
    y = torch.tensor([1] + [0] * 39).expand(8000, -1)
    _, rows = cover(y, 30, 2, generator)
    place = rows.argsort(1)
    rare, common = (torch.bincount(place[:, row], minlength=40) / 8000 for row in (0, 5))
    assert (rare[:30] - 1 / 30).abs().max() < 0.009
    assert (rare[30:] == 0).all()
    # 29 places of the context and the 10 queries for 39 rows.
    assert (common[:30] - 29 / 30 / 39).abs().max() < 0.007
    assert (common[30:] - 1 / 39).abs().max() < 0.007


def test_rows_of_a_rare_class_are_alike(generator):
    y = torch.tensor([1, 1, 1] + [0] * 37).expand(6000, -1)
    _, order = cover(y, 5, 2, generator)
    in_context = torch.zeros(6000, 40).scatter_(1, order[:, :5], 1.0).mean(0)
    assert (in_context[:3] - in_context[:3].mean()).abs().max() < 0.03
    assert (in_context[3:] - in_context[3:].mean()).abs().max() < 0.03
    assert in_context[:3].sum() >= 1
