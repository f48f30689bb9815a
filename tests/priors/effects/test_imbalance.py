import torch

from tabicl_linear.priors.base import Tasks
from tabicl_linear.priors.effects.imbalance import keep_rows


def keep(classes=4, tasks=300, rows=300, kept=200):
    y = torch.arange(rows).remainder(classes).expand(tasks, -1)
    x = torch.arange(rows).view(1, rows, 1).expand(tasks, -1, 2).float()
    kinds = torch.zeros(tasks, 2, dtype=torch.bool)
    tasks = Tasks(x, y, kinds)
    return keep_rows(tasks, kept, classes, torch.Generator().manual_seed(0))


def test_rows_are_kept_whole_and_in_order():
    tasks = keep()
    assert tasks.x.shape == (300, 200, 2)
    assert (tasks.x.diff(dim=1) > 0).all()
    whole = tasks.x[..., 0].remainder(4).long()
    all_there = tasks.y.amax(1) == 3
    assert torch.equal(tasks.y[all_there], whole[all_there])
    assert all_there.float().mean() > 0.9


def test_class_shares_become_uneven_and_differ_between_tasks():
    share = torch.stack([row.bincount(minlength=4) for row in keep().y]) / 200
    assert share.amax(1).median() > 0.33
    assert share.amin(1).min() < 0.05
    assert share.amax(1).min() < 0.3


def test_two_classes_always_remain():
    tasks = keep(classes=2, kept=3, rows=5, tasks=500)
    assert tasks.y.amin(1).eq(0).all()
    assert tasks.y.amax(1).eq(1).all()
