import pytest
import torch

from tabicl_linear.errors import DataError
from tabicl_linear.priors import GaussianUniformPrior, TaskShape


def draw(shape, seed=0):
    return GaussianUniformPrior().sample_tasks(shape, torch.Generator().manual_seed(seed))


def test_features_are_normal_and_labels_almost_uniform():
    x, y, categorical = draw(TaskShape(64, 500, 100, 4, 10))
    assert x.shape == (64, 500, 4)
    assert x.mean().abs() < 0.01
    assert x.std().item() == pytest.approx(1, abs=0.01)
    assert not categorical.any()
    share = torch.stack([torch.bincount(row, minlength=10) for row in y]) / 500
    assert (share.mean(0) - 0.1).abs().max() < 0.02
    # Each share is the gap of two boundaries with deviation 0.03; the outer ones have one.
    assert share[:, 1:9].std().item() == pytest.approx(0.03 * 2**0.5, rel=0.15)


@pytest.mark.parametrize("num_context", [10, 300, 499])
def test_every_class_is_in_the_context(num_context):
    _, y, _ = draw(TaskShape(32, 500, num_context, 4, 10))
    for row in y:
        classes = set(row.tolist())
        assert classes == set(row[:num_context].tolist()) == set(range(len(classes)))


def test_the_smallest_shape_has_two_classes():
    _, y, _ = draw(TaskShape(200, 3, 2, 1, 2))
    assert (y[:, :2].sum(1) == 1).all()


def test_labels_can_be_learned_from_features():
    x, y, _ = draw(TaskShape(16, 1000, 500, 2, 2))
    distance = torch.cdist(x[:, 500:], x[:, :500])
    predicted = y[:, :500].gather(1, distance.argmin(2))
    assert (predicted == y[:, 500:]).float().mean() > 0.85


def test_tasks_differ_and_draws_repeat():
    shape = TaskShape(4, 50, 20, 3, 3)
    first, again, other = draw(shape), draw(shape), draw(shape, seed=1)
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.x, other.x)
    assert len({tuple(row.tolist()) for row in first.y}) == 4


def test_the_split_only_reorders_rows():
    few, many = draw(TaskShape(4, 50, 5, 3, 3)), draw(TaskShape(4, 50, 49, 3, 3))
    rows = [torch.cat([t.x, t.y.unsqueeze(-1)], -1) for t in (few, many)]
    for a, b in zip(*rows, strict=True):
        assert torch.equal(a[a[:, 0].argsort()], b[b[:, 0].argsort()])


def test_a_shape_that_makes_no_task_is_refused():
    with pytest.raises(DataError, match="num_context=5 with num_classes=10"):
        draw(TaskShape(1, 50, 5, 3, 10))
