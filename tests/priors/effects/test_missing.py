import numpy as np
import pytest
import torch

from tabicl_linear.priors.effects.missing import MAX_RATE, MECHANISMS, draw_mechanisms, lose_cells_

TASKS, COLUMNS, ROWS = 40, 6, 600


def lose(name, chosen=None):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TASKS, COLUMNS, ROWS, generator=generator)
    y = torch.randint(3, (TASKS, ROWS), generator=generator)
    lost = lose_cells_(
        x.clone(),
        y,
        chosen=np.ones((TASKS, COLUMNS), bool) if chosen is None else chosen,
        mechanism=np.full(TASKS, MECHANISMS.index(name)),
        num_classes=3,
        rng=np.random.default_rng(0),
        generator=generator,
    )
    assert torch.equal(lost[~lost.isnan()], x[~lost.isnan()])
    return x, y, lost.isnan()


def shifts(value, lost):
    """How far the mean of the lost cells lies from that of the others, in standard errors."""
    result = []
    for v, gone in zip(value.flatten(0, 1), lost.flatten(0, 1), strict=True):
        if 20 < gone.sum() < ROWS - 20:
            error = (v[gone].var() / gone.sum() + v[~gone].var() / (~gone).sum()).sqrt()
            result.append((v[gone].mean() - v[~gone].mean()) / error)
    return torch.stack(result).abs()


@pytest.mark.parametrize("name", MECHANISMS)
def test_rates_lie_between_none_and_half(name):
    _, _, lost = lose(name)
    rate = lost.float().mean(2)
    assert rate.mean().item() == pytest.approx(MAX_RATE / 2, abs=0.03)
    assert rate.max() < 0.9


def test_cells_at_random_say_nothing():
    x, y, lost = lose("random")
    by_label = (y == 0).float().unsqueeze(1).expand_as(x)
    for value in (x, by_label):
        assert (shifts(value, lost) > 2).float().mean() < 0.1


def test_cells_lost_by_value_are_high_or_low_ones():
    x, y, lost = lose("value")
    assert (shifts(x, lost) > 4).float().mean() > 0.8
    assert (shifts((y == 0).float().unsqueeze(1).expand_as(x), lost) > 2).float().mean() < 0.1


def test_cells_lost_by_label_tell_the_class():
    x, y, lost = lose("label")
    assert (shifts((y == 0).float().unsqueeze(1).expand_as(x), lost) > 3).float().mean() > 0.3
    assert (shifts(x, lost) > 2).float().mean() < 0.1


def test_only_chosen_columns_lose_cells():
    chosen = np.zeros((TASKS, COLUMNS), bool)
    chosen[::2, 1] = True
    _, _, lost = lose("random", chosen)
    affected = lost.any(2).numpy()
    assert not affected[~chosen].any()
    # A rate may be so low that no cell is lost.
    assert affected[chosen].mean() > 0.8


def test_mechanisms_have_their_probabilities():
    drawn = draw_mechanisms(np.random.default_rng(0), 4000, 0.6)
    assert np.abs(np.bincount(drawn) / 4000 - [0.4, 0.3, 0.3]).max() < 0.03
