"""Numbers, maps and ranks in C++, bit for bit against PyTorch."""

import numpy as np
import pytest
import torch

from tabicl_linear.backends.cpp import random
from tabicl_linear.priors import TabPFNv1Prior, TaskShape, bins
from tabicl_linear.priors.tabpfn_v1 import columns
from tabicl_linear.priors.tabpfn_v1.hyperparameters import draw_network_parameters
from tabicl_linear.priors.tabpfn_v1.layers import draw_maps

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(
    not random.serves(CPU), reason="not built, or PyTorch has other bits on this processor"
)

COUNTS = (16, 17, 31, 32, 33, 100, 623, 624, 625, 1248, 70_001)


@pytest.fixture
def pair():
    """Two generators in one state."""
    return tuple(torch.Generator().manual_seed(7) for _ in range(2))


@pytest.fixture
def plainly(monkeypatch):
    """Computes a call without these functions."""

    def compute(call):
        with monkeypatch.context() as patch:
            patch.setattr(random, "serves", lambda device: False)
            return call()

    return compute


def equal_bits(ours, theirs):
    return torch.equal(ours.view(torch.int32), theirs.view(torch.int32))


def test_numbers_and_states_are_those_of_pytorch(pair):
    ours, theirs = pair
    # One after the other, so that draws begin anywhere in a state and cross its end.
    for count in COUNTS:
        expected = torch.rand(count, generator=theirs)
        assert equal_bits(random.uniform(count, generator=ours), expected)
        expected = torch.randn(count, generator=theirs)
        assert equal_bits(random.normal(count, generator=ours), expected)
        assert torch.equal(ours.get_state(), theirs.get_state())
        # What PyTorch holds back of a pair of normal numbers stays as it is.
        assert torch.equal(torch.randn(3, generator=ours), torch.randn(3, generator=theirs))


def test_noise_is_scaled_and_shifted(pair):
    ours, theirs = pair
    scale, shift = torch.rand(2, 9, 1, generator=torch.Generator().manual_seed(1))
    expected = torch.randn(9, 211, generator=theirs).mul_(scale).add_(shift)
    assert equal_bits(random.noise(scale, shift, 211, ours), expected)


def test_numbers_lie_on_the_cpu_whatever_the_default_device(pair):
    with torch.device("meta"):
        x = random.normal(16, generator=pair[0])
    assert equal_bits(x, torch.randn(16, generator=pair[1]))


@pytest.mark.parametrize("unit_noise", [False, True])
@pytest.mark.parametrize(("block_wise", "dropout"), [(False, 0.0), (False, 0.3), (True, 0.3)])
def test_maps_are_those_of_the_prior(block_wise, dropout, unit_noise, plainly):
    p = draw_network_parameters(np.random.default_rng(0), 1, 5).select(0)
    p = p._replace(block_wise=block_wise, unit_noise=unit_noise, noise_std=0.3, init_std=0.7)

    def maps():
        generator = torch.Generator().manual_seed(3)
        drawn = draw_maps(
            p,
            23,
            np.array([40, 40, 31]),
            layer=np.repeat([0, 1, 2], [40, 40, 3]),
            unit=np.concatenate([np.arange(40), np.arange(40), [0, 16, 30]]),
            dropout=dropout,
            rng=np.random.default_rng(2),
            generator=generator,
        )
        return *drawn, generator.get_state()

    ours, theirs = maps(), plainly(maps)
    assert (ours[0] == 0).any() == (block_wise or dropout > 0)
    for one, other in zip(ours[:3], theirs[:3], strict=True):
        assert equal_bits(one, other)
    assert torch.equal(ours[3], theirs[3])


@pytest.mark.parametrize("rows", [1, 2, 255, 1000])
def test_ranks_are_those_of_sorting(rows, plainly):
    x = torch.randn(6, rows, generator=torch.Generator().manual_seed(rows))
    x[1] = x[1].round()
    x[2] *= 1e-40
    x[3] = torch.where(x[3] > 0, 0.0, -0.0)
    x[4, ::3], x[4, 1::3] = torch.nan, torch.inf
    x[5, ::2] = -torch.inf
    assert torch.equal(random.ranks(x), plainly(lambda: columns.to_ranks(x)))
    assert torch.equal(random.ranks(x.T.contiguous().T), random.ranks(x))


@pytest.mark.parametrize("sharing", ["dataset", "batch"])
@pytest.mark.parametrize("num_features", [1, 5, 20])
def test_tables_do_not_depend_on_who_computes_them(sharing, num_features, plainly):
    shape = TaskShape(8, 200, 100, num_features, 10)

    def drawn():
        generator = torch.Generator().manual_seed(num_features)
        batches = [TabPFNv1Prior(sharing).sample_tasks(shape, generator) for _ in range(5)]
        return [x for batch in batches for x in batch] + [generator.get_state()]

    for ours, theirs in zip(drawn(), plainly(drawn), strict=True):
        assert torch.equal(ours.nan_to_num(-9.0), theirs.nan_to_num(-9.0))


@pytest.mark.parametrize("columns", [1, 15, 16, 40])
def test_boundaries_are_counted_as_pytorch_counts_them(columns, monkeypatch):
    g = torch.Generator().manual_seed(columns)
    values = torch.randn(6, columns, generator=g)
    values[1, 0], values[2, 0] = torch.nan, torch.inf
    boundaries = torch.cat([values[:, :1], torch.randn(6, 4, generator=g)], dim=1)
    boundaries[3, 1] = torch.nan
    numbers = np.array([5, 5, 3, 2, 1, 0])
    with_number, with_all = (bins.count_below(values, boundaries, n) for n in (numbers, None))
    monkeypatch.setattr(bins.random, "serves", lambda device: False)
    assert torch.equal(with_number, bins.count_below(values, boundaries, numbers))
    assert torch.equal(with_all, bins.count_below(values, boundaries))
