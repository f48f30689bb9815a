import numpy as np
import pytest
import torch

from tabicl_linear.priors.effects.extra_columns import Counts, add_columns, draw_counts

ROWS = 500


def add(tasks=8, **counts):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tasks, 3, ROWS, generator=generator)
    kinds = torch.tensor([True, False, False]).expand(tasks, -1)
    x[:, 0] = x[:, 0].round()
    given = Counts(**{**dict.fromkeys(Counts._fields, 0), **counts})
    return x, *add_columns(x, kinds, given, generator)


def match(x, y):
    """Which columns of y are columns of x, in sorted order."""
    return (y.unsqueeze(2) - x.unsqueeze(1)).abs().amax(3) == 0


def test_duplicates_are_columns_with_their_kinds():
    x, y, kinds = add(duplicate=2)
    same = match(x, y)
    assert same.any(2).all()
    assert same.sum((1, 2)).eq(5).all()
    assert torch.equal(same[:, :, 0], kinds)


def test_permuted_copies_have_the_values_and_say_nothing():
    x, y, kinds = add(permuted=2)
    is_copy = ~match(x, y).any(2)
    assert is_copy.sum(1).eq(2).all()
    equal_values = match(x.sort(2).values, y.sort(2).values)
    assert equal_values.any(2).all()
    assert torch.equal(equal_values[:, :, 0], kinds)
    for task, copies, flag in zip(x, y, is_copy, strict=True):
        r = torch.corrcoef(torch.cat([task, copies[flag]]))[:3, 3:]
        assert r.abs().max() < 5 * ROWS**-0.5


def test_noise_and_identifiers_say_nothing():
    x, y, kinds = add(noise=1, identifier=1)
    extra = ~match(x, y).any(2)
    for task, columns, flag in zip(x, y, extra, strict=True):
        r = torch.corrcoef(torch.cat([task, columns[flag]]))[:3, 3:]
        assert r.abs().max() < 5 * ROWS**-0.5
    codes = y[extra & kinds]
    assert torch.equal(codes, codes.round())
    assert (codes.min(), codes.max()) == (0, 255)
    assert all(len(column.unique()) > 150 for column in codes)


def test_combinations_are_linear_in_the_columns():
    x, y, kinds = add(combined=1)
    extra = ~match(x, y).any(2)
    assert not (extra & kinds).any()
    for task, column in zip(x.double(), y[extra].double(), strict=True):
        design = torch.cat([task, torch.ones(1, ROWS)]).T
        residual = column - design @ torch.linalg.lstsq(design, column).solution
        assert residual.abs().max() < 1e-5


def test_columns_come_in_random_order():
    x, y, _ = add(tasks=400, noise=3)
    place = match(x, y).any(2).float().mean(0)
    assert place.sub(0.5).abs().max() < 0.12


@pytest.mark.parametrize("num_features", [1, 2, 3, 20])
def test_at_least_one_column_is_not_an_extra_one(num_features):
    rng = np.random.default_rng(0)
    always = {"irrelevant": 1.0, "redundant": 1.0, "identifiers": 1.0}
    counts = [draw_counts(rng, num_features, **always) for _ in range(200)]
    assert all(min(c) >= 0 and sum(c) < num_features for c in counts)
    if num_features == 20:
        assert np.min([max(c) for c in counts]) >= 1
        assert (np.max(counts, 0) > [8, 8, 5, 5, 1]).all()


def test_each_kind_has_its_probability():
    rng = np.random.default_rng(0)
    drawn = [
        draw_counts(rng, 30, irrelevant=0.5, redundant=0.2, identifiers=0.0) for _ in range(1000)
    ]
    happened = np.array([[c.permuted + c.noise, c.duplicate + c.combined, c[4]] for c in drawn])
    assert np.abs((happened > 0).mean(0) - [0.5, 0.2, 0.0]).max() < 0.05
