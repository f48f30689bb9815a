"""Categories in the order of the classes of the rows that grow trees."""

import numpy as np
import pytest
import torch

from tabicl_linear.estimator.learners.chosen_trees.growth import grow
from tabicl_linear.estimator.learners.chosen_trees.orders import MOST, Orders, learn_orders
from tabicl_linear.estimator.learners.chosen_trees.trees import side_by_side


def rows(num_rows=600, categories=8, seed=0):
    """A column of codes whose even ones mean the second class, and one of noise; standardised."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(categories, size=num_rows)
    labels = (codes % 2) ^ (rng.random(num_rows) < 0.1)
    table = np.stack([(codes - 3) / 2.3, rng.normal(size=num_rows)], axis=1)
    return torch.from_numpy(table.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def one_hot(y, num_classes=2):
    return torch.nn.functional.one_hot(y, num_classes).double()


CATEGORICAL = torch.tensor([True, False])


def test_scores_rise_with_the_rate_of_a_class():
    z, y = rows()
    orders = learn_orders(z, one_hot(y), CATEGORICAL)
    assert orders.columns.tolist() == [0]
    scores = orders.of_rows(z)[:, 0]
    values = z[:, 0].unique()
    rates = torch.stack([y[z[:, 0] == value].double().mean() for value in values])
    of_values = torch.stack([scores[z[:, 0] == value][0] for value in values])
    smooth = torch.corrcoef(torch.stack([of_values.double(), rates]))[0, 1]
    assert abs(smooth) > 0.99


def test_several_classes_lie_along_the_direction_in_which_categories_differ_most():
    rng = np.random.default_rng(0)
    codes, z = rng.integers(6, size=3000), torch.empty(3000, 1)
    z[:, 0] = torch.from_numpy(codes)
    r = one_hot(torch.from_numpy((codes % 4 + (rng.random(3000) < 0.3)) % 4), 4)
    found = learn_orders(z, r, torch.tensor([True])).of_rows(z)[:, 0].double()
    of_category = torch.stack([r[codes == code].mean(0) for code in range(6)]) - r.mean(0)
    directions = torch.from_numpy(rng.normal(size=(4, 500)))
    others = (of_category @ (directions / directions.norm(dim=0)))[codes]
    assert found.square().mean() > 0.98 * others.square().mean(0).max()


@pytest.mark.parametrize("categories", [2, MOST + 1])
def test_two_categories_and_many_keep_their_codes(categories):
    z, y = rows(categories=categories)
    orders = learn_orders(z, one_hot(y), CATEGORICAL)
    assert orders.of_rows(z).shape == (600, 0)
    assert learn_orders(z, one_hot(y), ~CATEGORICAL).columns.tolist() == []


def test_unknown_categories_stand_in_the_middle_and_rounding_does_not_matter():
    z, y = rows()
    orders = learn_orders(z, one_hot(y), CATEGORICAL)
    unknown = torch.tensor([[7.7, 0.0], [-9.0, 0.0], [0.2, 0.0]])
    assert not orders.of_rows(unknown).any()
    torch.testing.assert_close(orders.of_rows(z * (1 + 1e-6)), orders.of_rows(z), rtol=0, atol=0)


def test_trees_ask_in_that_order_and_find_the_same_leaves_side_by_side():
    z, y = rows()
    ordered, plain = (
        grow(z, y, categorical, num_classes=2, seed=0)
        for categorical in (CATEGORICAL, torch.zeros(2, dtype=torch.bool))
    )
    assert (ordered.trees.columns >= 2).any()
    assert not (plain.trees.columns >= 2).any()
    other = grow(z[::2], y[::2], CATEGORICAL, num_classes=2, seed=1)
    parts = [ordered.trees, plain.trees, other.trees]
    both = side_by_side(parts)
    starts = np.cumsum([0, *(part.num_leaves for part in parts)])[:-1]
    expected = torch.cat([p.of_rows(z) + int(s) for p, s in zip(parts, starts, strict=True)], dim=1)
    assert torch.equal(both.of_rows(z), expected)


def test_no_orders_are_a_value_too():
    z, _ = rows()
    assert Orders.none(z).of_rows(z).shape == (600, 0)
