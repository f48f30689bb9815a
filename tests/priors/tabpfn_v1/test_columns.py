import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from tabicl_linear.priors.tabpfn_v1 import columns


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_ranks_count_values_that_are_not_larger(generator):
    x = torch.randint(0, 20, (4, 50), generator=generator).float()
    x[0, 3] = torch.nan
    x[1, 4], x[1, 5] = torch.inf, -torch.inf
    x[2] = torch.randn(50, generator=generator)
    x[3] = 1.0
    ranks = columns.to_ranks(x)
    assert torch.equal(ranks, (x.unsqueeze(-1) >= x.unsqueeze(-2)).sum(-1).float())
    np.testing.assert_array_equal(ranks[2], rankdata(x[2], "max"))
    assert ranks[0, 3] == 0


def test_standardised_columns_have_mean_0_and_deviation_1(generator):
    x = 5 + 3 * torch.randn(6, 500, generator=generator)
    x[0, :50] = torch.nan
    z = columns.standardise(x)
    assert z[0, :50].isnan().all()
    for seen in (z[0, 50:], z[1]):
        assert seen.mean().abs() < 1e-5
        assert seen.std().item() == pytest.approx(1, abs=1e-4)


def test_standardised_values_are_clipped_and_constants_finite():
    x = torch.zeros(2, 20000)
    x[0, 0] = 1.0
    z = columns.standardise(x)
    assert z.abs().max() == 100
    assert (z[1] == 0).all()


def test_outliers_are_pulled_in_as_by_the_formula(generator):
    x = torch.randn(3, 400, generator=generator, dtype=torch.float64)
    x[0, 0], x[0, 1], x[0, 2] = 50.0, -80.0, torch.nan
    x[1, 3] = 30.0
    before = x.clone()

    def bounds(v):
        return np.nanmean(v) - 4 * np.nanstd(v, ddof=1), np.nanmean(v) + 4 * np.nanstd(v, ddof=1)

    for values, out in zip(before.numpy(), columns.pull_in_outliers(x).numpy(), strict=True):
        low, high = bounds(values)
        low, high = bounds(np.where((values < low) | (values > high), np.nan, values))
        expected = np.maximum(values, low - np.log1p(np.abs(values)))
        expected = np.minimum(expected, high + np.log1p(np.abs(expected)))
        np.testing.assert_allclose(out, expected, rtol=1e-12)
        assert np.nanmax(np.abs(expected)) < 10
    assert x[0].isnan().sum() == 1
    assert torch.equal(x[2], before[2])


def test_cells_are_dropped_at_each_task_s_rate(generator):
    x = torch.zeros(3, 20, 1000)
    share = columns.drop_cells_(x, torch.tensor([0.0, 0.1, 0.05]), generator).isnan()
    share = share.float().mean((1, 2))
    assert share[0] == 0
    assert share[1:].tolist() == pytest.approx([0.1, 0.05], abs=0.01)
