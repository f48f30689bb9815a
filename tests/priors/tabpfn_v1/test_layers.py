import numpy as np
import pytest
import torch

from tabicl_linear.priors.tabpfn_v1.hyperparameters import draw_network_parameters
from tabicl_linear.priors.tabpfn_v1.layers import draw_maps

COUNT = 200


def parameters(**changes):
    return draw_network_parameters(np.random.default_rng(0), 1, 5).select(0)._replace(**changes)


def draw(p, fan_in, fan_out, dropout=0.0, unit=None, layers=COUNT):
    """Outputs `unit` (all if None) of maps of one size."""
    unit = np.arange(fan_out) if unit is None else unit
    maps = draw_maps(
        p,
        fan_in,
        np.full(layers, fan_out),
        layer=np.repeat(np.arange(layers), len(unit)),
        unit=np.tile(unit, layers),
        dropout=dropout,
        rng=np.random.default_rng(1),
        generator=torch.Generator().manual_seed(1),
    )
    return maps._replace(weight=maps.weight.view(layers, len(unit), fan_in))


def test_dropped_weights_are_scaled_as_the_authors_scale_them():
    weight = draw(parameters(block_wise=False, init_std=0.7), 30, 40, 0.25).weight
    kept = weight != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.01)
    assert weight[kept].std().item() == pytest.approx(0.7 / (1 - 0.5), rel=0.01)


def test_blocks_lie_on_the_diagonal_and_keep_the_variance():
    weight = draw(parameters(block_wise=True, init_std=0.7), 30, 40, 0.25).weight
    counts = set()
    for w in weight:
        kept = w != 0
        blocks = len({tuple(row.nonzero()[:, 0].tolist()) for row in kept if row.any()})
        height, width = 40 // blocks, 30 // blocks
        expected = torch.block_diag(*[torch.ones(height, width)] * blocks).bool()
        assert torch.equal(kept[: expected.shape[0], : expected.shape[1]], expected)
        assert kept.sum() == expected.sum()
        counts.add(blocks)
    assert counts == set(range(1, 7))
    assert weight.square().mean().sqrt().item() == pytest.approx(0.7, rel=0.01)


def test_biases_are_uniform_within_the_fan_in_bound():
    bias = draw(parameters(), 16, 50).bias
    assert bias.abs().max() <= 0.25
    assert bias.std().item() == pytest.approx(0.25 / 3**0.5, rel=0.02)


@pytest.mark.parametrize("unit_noise", [False, True])
def test_noise_has_the_asked_deviation(unit_noise):
    p = parameters(unit_noise=unit_noise, noise_std=0.3, init_std=0.0, block_wise=False)
    maps = draw(p, 4, 50)
    maps = maps._replace(weight=maps.weight.flatten(0, 1))
    assert (len(maps.noise.unique()) > 1) == unit_noise
    assert maps.noise.square().mean().sqrt().item() == pytest.approx(0.3, rel=0.02)
    noise = maps(torch.ones(4, 100), torch.Generator().manual_seed(2)) - maps.bias
    assert noise.square().mean().sqrt().item() == pytest.approx(0.3, rel=0.02)


def test_a_map_multiplies_and_adds_the_bias():
    maps = draw(parameters(noise_std=0.0, init_std=1.0), 7, 9, layers=1)
    maps = maps._replace(weight=maps.weight.flatten(0, 1))
    x = torch.randn(7, 20, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(maps(x, torch.Generator()), maps.weight @ x + maps.bias, atol=1e-6)


def test_chosen_units_lie_in_their_own_blocks():
    p = parameters(block_wise=True)
    unit = np.array([0, 39, 20])
    some, whole = draw(p, 30, 40, unit=unit), draw(p, 30, 40)
    assert torch.equal(some.weight != 0, whole.weight[:, unit] != 0)
