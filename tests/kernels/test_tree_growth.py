"""Growth of trees in PyTorch: the best question by hand, and what a tree may not ask."""

import itertools

import pytest
import torch

from tabicl_linear.kernels.tree_growth import grown_tree, shared_leaves


def table(rows=60, columns=4, outputs=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 9, (columns, rows), generator=g, dtype=torch.uint8) * 20
    return numbers, torch.randn(rows, outputs, generator=g, dtype=torch.float64)


def error_of(numbers, targets, column, cut):
    before = numbers[column] <= cut
    return sum((part - part.mean(0)).square().sum() for part in (targets[before], targets[~before]))


def test_the_root_asks_the_best_question():
    numbers, targets = table()
    result = grown_tree(numbers, targets, torch.ones(1, 4, dtype=torch.bool), fewest=5, least=0.0)
    options = itertools.product(range(4), range(0, 160, 20))
    errors = {
        (column, cut): float(error_of(numbers, targets, column, cut))
        for column, cut in options
        if 5 <= int((numbers[column] <= cut).sum()) <= 55
    }
    column, cut = min(errors, key=errors.__getitem__)
    assert result.columns.tolist() == [column]
    assert result.cuts.tolist() == [[cut, cut + 20]]
    torch.testing.assert_close(result.nodes, 1 + (numbers[column] > cut).int())


def test_leaves_have_rows_enough_and_nodes_ask_what_they_may():
    numbers, targets = table(rows=200)
    allowed = torch.rand(7, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    allowed[0] = True
    result = grown_tree(numbers, targets, allowed, fewest=30, least=0.0)
    assert torch.bincount(result.nodes)[result.nodes.unique()].min() >= 30
    for node, column in enumerate(result.columns.tolist()):
        assert column < 0 or allowed[node, column]
    assert not torch.isin(result.nodes, (result.columns >= 0).nonzero()).any()


@pytest.mark.parametrize("targets", [torch.zeros(60, 2), torch.ones(60, 2)])
def test_nothing_is_asked_about_what_does_not_vary(targets):
    numbers, _ = table()
    allowed = torch.ones(3, 4, dtype=torch.bool)
    result = grown_tree(numbers, targets.double(), allowed, fewest=1, least=1e-9)
    assert result.columns.tolist() == [-1] * 3
    assert not result.nodes.any()


def test_shared_leaves_are_counted():
    leaves = torch.randint(0, 9, (70, 4), generator=torch.Generator().manual_seed(0))
    leaves += 9 * torch.arange(4)
    expected = (leaves[:, None] == leaves).sum(-1).float()
    torch.testing.assert_close(shared_leaves(leaves), expected, rtol=0, atol=0)
