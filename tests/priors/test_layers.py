import numpy as np
import pytest
import torch

from tabicl_linear.priors.hyperparameters import draw_network_parameters
from tabicl_linear.priors.layers import draw_layer

COUNT = 200


def parameters(**changes):
    p = draw_network_parameters(np.random.default_rng(0), COUNT, 5)
    return p._replace(**{name: np.full(COUNT, value) for name, value in changes.items()})


def draw(p, fan_in, fan_out, dropout=0.0, unit=None):
    return draw_layer(
        p,
        fan_in,
        fan_out,
        dropout=np.full(COUNT, dropout),
        unit=unit,
        rng=np.random.default_rng(1),
        generator=torch.Generator().manual_seed(1),
    )


def test_dropped_weights_are_scaled_as_the_authors_scale_them():
    p = parameters(block_wise=False, init_std=0.7)
    weight = draw(p, np.full(COUNT, 30), np.full(COUNT, 40), 0.25).weight
    kept = weight != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.01)
    assert weight[kept].std().item() == pytest.approx(0.7 / (1 - 0.5), rel=0.01)


def test_blocks_lie_on_the_diagonal_and_keep_the_variance():
    p = parameters(block_wise=True, init_std=0.7)
    weight = draw(p, np.full(COUNT, 30), np.full(COUNT, 40), 0.25).weight
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


def test_padding_is_zero_in_weights_biases_and_noise():
    p = parameters(unit_noise=True)
    fan_in, fan_out = np.tile([3, 9], COUNT // 2), np.tile([8, 5], COUNT // 2)
    layer = draw(p, fan_in, fan_out, 0.1)
    assert layer.weight.shape == (COUNT, 8, 9)
    assert (layer.weight[0::2, :, 3:] == 0).all()
    assert (layer.weight[1::2, 5:] == 0).all()
    for field in (layer.bias, layer.noise):
        assert (field[1::2, 5:] == 0).all()
        assert (field[1::2, :5] != 0).all()


def test_biases_are_uniform_within_the_fan_in_bound():
    bias = draw(parameters(), np.full(COUNT, 16), np.full(COUNT, 50)).bias
    assert bias.abs().max() <= 0.25
    assert bias.std().item() == pytest.approx(0.25 / 3**0.5, rel=0.02)


@pytest.mark.parametrize("unit_noise", [False, True])
def test_noise_has_the_asked_deviation(unit_noise):
    p = parameters(unit_noise=unit_noise, noise_std=0.3, init_std=0.0, block_wise=False)
    layer = draw(p, np.full(COUNT, 4), np.full(COUNT, 50))
    assert (len(layer.noise.unique()) > 1) == unit_noise
    assert layer.noise.square().mean().sqrt().item() == pytest.approx(0.3, rel=0.02)
    generator = torch.Generator().manual_seed(2)
    out = layer(torch.ones(COUNT, 4, 100), generator)
    noise = out - layer.bias
    assert noise.square().mean().sqrt().item() == pytest.approx(0.3, rel=0.02)


def test_chosen_units_lie_in_their_own_blocks():
    p = parameters(block_wise=True)
    unit = np.tile([0, 39, 20], (COUNT, 1))
    sizes = np.full(COUNT, 30), np.full(COUNT, 40)
    some, whole = draw(p, *sizes, unit=unit), draw(p, *sizes)
    index = torch.as_tensor(unit)
    assert torch.equal(some.weight != 0, whole.units(index).weight != 0)
