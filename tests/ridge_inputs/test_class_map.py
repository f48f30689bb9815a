"""Logits as a linear function of all class shares, fitted by Newton's method."""

import pytest
import torch
import torch.nn.functional as F
from ridge_inputs.ridge_models import by_logistic_regression
from tolerances import CONTRACT, SEARCHED, assert_close

from tabicl_linear.ridge_inputs import class_map as module
from tabicl_linear.ridge_inputs.class_map import (
    FittedMap,
    fit_class_map,
    mapped,
    never_reversed,
    scaled,
)


def tasks(rows=80, classes=4, number=5):
    """Predicted shares, labels as numbers and as shares, and confidences."""
    g = torch.Generator().manual_seed(rows)
    y = torch.randint(0, classes, (number, rows), generator=g)
    targets = F.one_hot(y, classes).double()
    shares = 0.3 * targets + 0.2 * torch.randn(targets.shape, generator=g, dtype=torch.float64)
    confidence = torch.tensor([[1.0], [4.0], [16.0], [2.0], [8.0]]).double()[:number]
    return shares, y, targets, confidence


def total(shares, targets, present, fitted, start):
    """The penalised loss of each task."""
    logits = mapped(shares, fitted).masked_fill(~present[:, None], -1e9)
    penalty = torch.full_like(start, module.SHARE_PENALTY)
    penalty[..., -1] = module.BIAS_PENALTY
    data = -(logits.log_softmax(-1) * targets).sum((1, 2))
    return data + (penalty * (fitted - start) ** 2).sum((1, 2)) / 2


def test_it_is_what_a_general_minimiser_finds():
    shares, y, targets, confidence = tasks()
    result = fit_class_map(shares, targets, targets.any(1), scaled(confidence, 4))
    for task in range(5):
        expected = by_logistic_regression(shares[task], y[task], confidence[task], shares[task])
        assert_close(mapped(shares, result)[task], expected, SEARCHED)


def test_a_masked_class_is_found_again():
    """A linear function of a value never predicts the class in the middle."""
    y = torch.arange(300)[None] % 3
    value = y - 1 + 0.3 * torch.randn(1, 300, generator=torch.Generator().manual_seed(0)).double()
    third = torch.full_like(value, 1 / 3)
    shares = torch.stack([third - value / 3, third, third + value / 3], dim=-1)
    targets, start = F.one_hot(y, 3).double(), scaled(torch.tensor([[4.0]]).double(), 3)
    result = fit_class_map(shares, targets, targets.any(1), start)
    assert (mapped(shares, start).argmax(-1) == 1).sum() == 0
    assert (mapped(shares, result).argmax(-1) == y).double().mean() > 0.9


@pytest.mark.parametrize("rows", [5, 30])
def test_never_worse_than_its_start_however_few_the_rows(rows):
    shares, _, targets, confidence = tasks(rows)
    start, present = scaled(confidence, 4), targets.any(1)
    result = fit_class_map(shares, targets, present, start)
    assert result.isfinite().all()
    before, after = (total(shares, targets, present, each, start) for each in (start, result))
    assert (after <= before).all()
    assert (after < before).any()


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 0, 1], [2, 0, 1, 2]])
def test_classes_that_no_rows_tell_apart_need_no_map(labels):
    targets = F.one_hot(torch.tensor([labels]), 4).double()
    others = targets.sum(1, keepdim=True) - targets
    shares = others / others.sum(-1, keepdim=True).clamp(min=1)  # of the rows that are left
    start = scaled(torch.tensor([[2.0]]).double(), 4)
    assert torch.equal(fit_class_map(shares, targets, targets.any(1), start), start)


def test_steps_that_overshoot_are_cut():
    """Shares far from 0 and 1 under a high confidence: a first step of Newton's would diverge."""
    shares, _, targets, _ = tasks(60)
    start, present = scaled(torch.full((5, 1), 16.0).double(), 4), targets.any(1)
    result = fit_class_map(5 * shares, targets, present, start)
    slope = torch.autograd.functional.jacobian(
        lambda at: total(5 * shares, targets, present, at, start).sum(), result
    )
    first = torch.autograd.functional.jacobian(
        lambda at: total(5 * shares, targets, present, at, start).sum(), start
    )
    assert slope.norm() < 1e-3 * first.norm()


def test_absent_classes_keep_their_start_and_do_not_count():
    shares, y, _, confidence = tasks()
    y[0] %= 3  # without the last
    y[1][y[1] == 1] = 0  # without one in between
    targets = F.one_hot(y, 4).double()
    shares = shares * targets.any(1, keepdim=True)  # no regression predicts what it has not seen
    start = scaled(confidence, 4)
    result = fit_class_map(shares, targets, targets.any(1), start)
    assert_close(result[0, 3], start[0, 3], CONTRACT)
    assert_close(result[1, 1], start[1, 1], CONTRACT)
    for task in range(5):
        one = slice(task, task + 1)
        alone = fit_class_map(shares[one], targets[one], targets[one].any(1), start[one])
        present = targets[task].any(0)
        assert_close(
            mapped(shares[one], alone)[..., present],
            mapped(shares[one], result[one])[..., present],
            SEARCHED,
        )


@pytest.mark.parametrize("classes", [2, 5])
def test_shares_that_tell_nothing_are_not_reversed(classes):
    """The mean of the other rows is lowest for the class of the row that is left out."""
    y = torch.arange(60)[None] % classes
    targets = F.one_hot(y, classes).double()
    shares = (targets.sum(1, keepdim=True) - targets) / 59
    present = torch.ones(1, classes).bool()
    result = fit_class_map(shares, targets, present, scaled(torch.ones(1, 1).double(), classes))
    own, other = F.one_hot(torch.tensor([0, 1]), classes).double()
    logits = mapped(torch.stack([own, other])[None], result)
    assert_close(logits.softmax(-1), torch.full_like(logits, 1 / classes), CONTRACT)


def test_constants_in_place_of_reversed_maps_are_the_shares_of_classes():
    targets = F.one_hot(torch.tensor([[0, 0, 0, 2, 2]]), 4).double()
    present = torch.tensor([[True, False, True, False]])
    upright = scaled(torch.ones(1, 1).double(), 4)
    assert torch.equal(never_reversed(upright, targets, present), upright)
    result = never_reversed(-upright, targets, present)
    logits = mapped(torch.randn(1, 3, 4).double(), result)[..., [0, 2]]
    expected = torch.tensor([4 / 7, 3 / 7], dtype=torch.float64).expand(1, 3, 2)
    assert_close(logits.softmax(-1), expected, CONTRACT)
    assert torch.equal(result[0, [1, 3]], -upright[0, [1, 3]])


def test_it_starts_as_one_factor_for_all():
    shares, _, _, confidence = tasks()
    expected = confidence.unsqueeze(-1) * shares
    assert torch.equal(mapped(shares, scaled(confidence, 4)), expected)


def left_out_by_hand(shares, targets, start):
    """Logits of every row of a single task under the map of the others."""
    logits = []
    for row in range(shares.shape[1]):
        others = torch.arange(shares.shape[1]) != row
        best = fit_class_map(shares[:, others], targets[:, others], targets.any(1), start)
        logits.append(mapped(shares[:, row : row + 1], best))
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_are_left_out_as_if_the_map_were_fitted_to_the_others(classes):
    """A step of Newton's method is not exact, but much closer than the map of all rows."""
    shares, _, targets, confidence = tasks(60, classes, 3)
    wide = F.pad(shares, (0, 2)), F.pad(targets, (0, 2))
    start = scaled(confidence, classes + 2)
    present = wide[1].any(1)
    best = fit_class_map(*wide, present, start)
    result = FittedMap.of(best, *wide, present).left_out(*wide)
    for task in range(3):
        one = slice(task, task + 1)
        expected = left_out_by_hand(*(part[one] for part in (*wide, start)))
        exact, all_rows = expected[..., :classes], mapped(wide[0][one], best[one])[..., :classes]
        error, before = (
            (z - exact).square().mean() for z in (result[one][..., :classes], all_rows)
        )
        assert error < 0.05 * before
    assert torch.equal(result[..., classes:], mapped(wide[0], best)[..., classes:])


def test_no_row_gains_from_being_left_out_and_one_of_its_class_alone_loses():
    shares, _, targets, confidence = tasks(50, 3, 5)
    shares[:, 0], targets[:, 0] = torch.tensor([0.1, 0.1, 0.8]), torch.tensor([0.0, 0.0, 1.0])
    others = targets[:, 1:, 2:].clone()
    targets[:, 1:, :1] += others
    targets[:, 1:, 2:] = 0
    start = scaled(confidence, 3)
    best = fit_class_map(shares, targets, targets.any(1), start)
    result = FittedMap.of(best, shares, targets, targets.any(1)).left_out(shares, targets)
    before = (mapped(shares, best).log_softmax(-1) * targets).sum(-1)
    after = (result.log_softmax(-1) * targets).sum(-1)
    assert (after <= before + 1e-9).all()
    assert (after[:, 0] < before[:, 0] - 0.1).all()
