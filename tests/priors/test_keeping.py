import numpy as np
import pytest
import torch

from tabicl_linear.errors import DataError
from tabicl_linear.priors import TaskShape
from tabicl_linear.priors.keeping import Drawn, cut_into_codes, flip_classes, kept_tasks


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_draws_of_one_class_are_drawn_again():
    shape, asked = TaskShape(4, 10, 5, 1, 3), []

    def draw(count, rng):
        asked.append(count)
        y = torch.arange(10).remainder(2).mul(2).repeat(count, 1)
        y[: count // 2] = 1
        return Drawn(torch.randn(count, 1, 10), y, torch.zeros(count, 1, dtype=torch.bool))

    tasks = kept_tasks(draw, shape, generator())
    assert asked == [4, 2, 1]
    assert tasks.x.shape == (4, 10, 1)
    assert all(set(row.tolist()) == {0, 1} for row in tasks.y)


def test_draws_without_two_classes_end_in_one_line():
    def draw(count, rng):
        return Drawn(torch.zeros(count, 1, 9), torch.zeros(count, 9, dtype=torch.long),
                     torch.zeros(count, 1, dtype=torch.bool))  # fmt: skip

    with pytest.raises(DataError, match="num_rows=9 with num_classes=2: hardly any") as error:
        kept_tasks(draw, TaskShape(1, 9, 5, 1, 2), generator())
    assert "\n" not in str(error.value)


def test_a_share_of_labels_is_replaced_by_any_class():
    y = torch.zeros(3, 20_000, dtype=torch.long)
    flipped = flip_classes(y, np.array([0.0, 0.5, 1.0]), np.array([2, 2, 5]), generator())
    assert flipped[0].eq(0).all()
    share = flipped.ne(0).float().mean(1)
    torch.testing.assert_close(share[1:], torch.tensor([0.25, 0.8]), atol=0.02, rtol=0)
    assert flipped.amax(1).tolist() == [0, 1, 4]


def test_codes_have_no_order_and_neighbours_share_one():
    z = torch.randn(20, 5000, generator=generator()).sort(1).values
    count, skew = np.full(20, 30), np.full(20, 0.3)
    codes = cut_into_codes(z, count, skew, generator(1))
    assert codes.amin() == 0
    assert codes.amax() == 29
    # Sorted values go through each category once.
    assert ((codes.diff() != 0).sum(1) == 29).all()
    changes = codes.diff()
    assert 0.3 < (changes > 0).sum() / (changes != 0).sum() < 0.7
    few = cut_into_codes(z, np.arange(2, 22), skew, generator(1))
    assert torch.equal(few.amax(1), torch.arange(1, 21))
