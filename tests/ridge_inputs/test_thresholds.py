"""Thresholds of trees: between values of the context, so that no rounding decides."""

from dataclasses import replace

import pytest
import torch
from contract.variants import task
from ridge_inputs.ridge_models import between_values, fitted, noisy
from ridge_inputs.test_features import (
    CATEGORICAL,
    OPTIONS,
    PLACES,
    SMALL,
    WIDE,
    drawn,
    features_of,
    table,
    thresholds,
)
from tolerances import assert_close

from tabicl_linear.ridge_inputs.features import RidgeFeatures


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_thresholds_lie_between_neighbouring_values(dtype):
    features, z = RidgeFeatures(WIDE, OPTIONS), table(40).to(dtype)
    z[..., 3] = z[..., 3].round()
    columns, rows = features.tree_questions(4, 40)
    expected = [
        between_values(task, columns, rows, of_task)
        for task, of_task in zip(z, CATEGORICAL, strict=True)
    ]
    result = thresholds(features, z)
    assert result.dtype == dtype
    assert_close(result, torch.stack(expected), 1e-6)
    numbers = ~CATEGORICAL[:, columns]
    gaps = (z[..., columns] - result[:, None]).abs().amin(1)
    assert (gaps[numbers] > 1e-4).all(), "no value of the context is a threshold"
    plain = torch.zeros_like(CATEGORICAL)
    one = features_of(features, z, categorical=plain, thresholds=thresholds(features, z, plain))
    other = features_of(features, z, categorical=plain, thresholds=drawn(features, z))
    assert torch.equal(one, other), "context rows are where the values themselves put them"


def test_the_smallest_value_has_every_row_on_one_side():
    features = RidgeFeatures(WIDE, OPTIONS)
    z = torch.zeros(2, 6, 4)
    limits = thresholds(features, z, torch.zeros_like(CATEGORICAL))
    assert (limits == -torch.inf).all()
    nothing = torch.zeros_like(CATEGORICAL)
    leaves = features_of(features, z - 9, thresholds=limits, categorical=nothing)
    assert (leaves[..., PLACES["trees"]].unflatten(-1, (4, 4))[..., 3] == 1).all()


@pytest.mark.parametrize("size", [1, 7, 40])
def test_thresholds_depend_on_neither_the_order_nor_the_division_of_rows(size):
    features, z = RidgeFeatures(WIDE, OPTIONS), table(40)
    expected, order = thresholds(features, z), torch.randperm(40)
    parts = z[:, order].split(size, dim=1)
    assert torch.equal(features.thresholds(drawn(features, z), parts, CATEGORICAL), expected)


def rounded(x, seed):
    """Every cell moved by a unit in the last place of float32, up or down or not at all."""
    g = torch.Generator().manual_seed(seed)
    signs = torch.randint(-1, 2, x.shape, generator=g)
    return x + signs * x.abs() * torch.finfo(torch.float32).eps


def test_rounding_of_cells_moves_no_row_to_another_leaf():
    """Equal cells that arithmetic of other digits or another order tells apart."""
    features, z = RidgeFeatures(WIDE, replace(OPTIONS, num_trees=40)), table(200).mul(3).round() / 7
    plain = {"categorical": torch.zeros_like(CATEGORICAL)}
    trees = features.sets(4)[0][-1].place
    limits = thresholds(features, z, plain["categorical"])
    leaves = features_of(features, z, thresholds=limits, **plain)[..., trees]
    for seed in range(4):
        moved = rounded(z, seed)
        again = thresholds(features, moved, plain["categorical"])
        assert_close(again.clamp(min=-99), limits.clamp(min=-99), 1e-5)
        result = features_of(features, moved, thresholds=again, **plain)[..., trees]
        assert torch.equal(result, leaves)
        at_values = features_of(features, moved, thresholds=drawn(features, moved), **plain)
        assert not torch.equal(at_values[..., trees], leaves), "or this could not fail"
    cut = rounded(z, 9).float().double()
    assert torch.equal(features_of(features, cut, thresholds=limits, **plain)[..., trees], leaves)


@pytest.mark.parametrize("form", ["leave_one_out", "earlier_rows"])
def test_predictions_do_not_depend_on_the_digits_of_the_cells(form):
    """The same table in float32, widened, and computed in another order."""
    model, batch = noisy(ridge=replace(SMALL, form=form)), task(100, num_context=90)
    x = ((batch.x * 3).round() / 7).float()
    nothing = torch.zeros_like(batch.categorical)
    expected = model.predict(*fitted(model, batch._replace(x=x.double(), categorical=nothing)))
    others = x, rounded(x.double(), 1), (batch.x * 3).round() * (1 / 7)
    for other in others:
        result = model.predict(*fitted(model, batch._replace(x=other, categorical=nothing)))
        assert_close(result.double(), expected, 1e-4)
