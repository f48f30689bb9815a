import numpy as np
import pytest
import torch

from tabicl_linear.priors.effects.distortions import (
    FUNCTIONS,
    _function,
    choose_columns,
    distort_,
    recode_,
)

ROWS = 400


def table(tasks=20, columns=5, seed=0):
    return torch.randn(tasks, columns, ROWS, generator=torch.Generator().manual_seed(seed))


def distorted(x, kinds=None, chosen=None):
    b, m, _ = x.shape
    kinds = torch.zeros(b, m, dtype=torch.bool) if kinds is None else kinds
    chosen = np.ones((b, m), bool) if chosen is None else chosen
    return distort_(x.clone(), kinds, chosen, np.random.default_rng(0))


def test_distortions_are_monotone_z_scores():
    x = table()
    y = distorted(x)
    order = x.argsort(2)
    steps = y.gather(2, order).diff(dim=2)
    rising, falling = (steps >= 0).all(2), (steps <= 0).all(2)
    assert (rising | falling).all()
    assert rising.any()
    assert falling.any()
    assert y.mean(2).abs().max() < 1e-4
    assert y.square().mean(2).sub(1).abs().max() < 0.01
    assert (x - y).abs().amax(2).gt(0.01).all()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("amount", [0.0, 1.0])
def test_functions_rise_over_the_whole_range(name, amount):
    z = torch.linspace(-3, 3, 101).unsqueeze(0)
    y = _function(name, z.clone(), torch.tensor([[amount]]))
    assert y.isfinite().all()
    assert (y.diff() >= 0).all()
    assert y[0, -1] > y[0, 0]


def test_heavy_tails_and_levels_come_out():
    y = distorted(table(tasks=60)).flatten(0, 1)
    kurtosis = y.pow(4).mean(1)
    assert (kurtosis > 10).float().mean() > 0.1
    levels = torch.tensor([len(column.unique()) for column in y])
    assert (levels < 25).float().mean() == pytest.approx(1 / len(FUNCTIONS), abs=0.07)


def test_only_chosen_numeric_columns_change():
    x = table()
    kinds = torch.zeros(20, 5, dtype=torch.bool)
    kinds[:, 0] = True
    chosen = np.zeros((20, 5), bool)
    chosen[:, :2] = True
    changed = (distorted(x, kinds, chosen) != x).any(2)
    assert torch.equal(changed, torch.tensor([False, True, False, False, False]).expand(20, -1))


def test_missing_cells_stay_missing():
    x = table()
    x[:, :, ::7] = torch.nan
    assert torch.equal(distorted(x).isnan(), x.isnan())
    codes = x.round()
    every = torch.ones(20, 5, dtype=torch.bool)
    recoded = recode_(codes.clone(), every, np.ones(20, bool), torch.Generator().manual_seed(0))
    assert torch.equal(recoded.isnan(), x.isnan())


def test_recoding_renames_categories_from_zero():
    x = table().mul(2).round().div(3)
    kinds = torch.ones(20, 5, dtype=torch.bool)
    y = recode_(x.clone(), kinds, np.ones(20, bool), torch.Generator().manual_seed(0))
    for old, new in zip(x.flatten(0, 1), y.flatten(0, 1), strict=True):
        pairs = {(a, b) for a, b in zip(old.tolist(), new.tolist(), strict=True)}
        count = len(old.unique())
        assert len(pairs) == count
        assert {b for _, b in pairs} == set(range(count))


def test_recoded_categories_have_no_order():
    x = table(tasks=200, columns=1).mul(2).round()
    kinds = torch.ones(200, 1, dtype=torch.bool)
    y = recode_(x.clone(), kinds, np.ones(200, bool), torch.Generator().manual_seed(0))
    r = torch.stack([torch.corrcoef(torch.cat(pair))[0, 1] for pair in zip(x, y, strict=True)])
    assert r.mean().abs() < 4 * r.std() / 200**0.5
    assert r.abs().max() > 0.5


def test_only_categorical_columns_of_chosen_tasks_are_recoded():
    x = table(2, 2).round().add(10)
    kinds = torch.tensor([[True, False], [True, False]])
    y = recode_(x.clone(), kinds, np.array([True, False]), torch.Generator().manual_seed(0))
    assert (y != x).any(2).tolist() == [[True, False], [False, False]]


def test_columns_are_chosen_in_some_tasks_and_there_in_different_shares():
    chosen = choose_columns(np.random.default_rng(0), 2000, 50, 0.3)
    share = chosen.mean(1)
    assert (share > 0).mean() == pytest.approx(0.3, abs=0.04)
    assert np.abs(np.quantile(share[share > 0], [0.25, 0.75]) - [0.25, 0.75]).max() < 0.06
