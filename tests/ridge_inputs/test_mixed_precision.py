"""Float64 solutions from float32 factors, against those in float64."""

import pytest
import torch
from log_messages import messages_of
from ridge_inputs.test_earlier_rows import LOGISTIC, empty, table
from tolerances import ROUNDING, assert_close

from tabicl_linear.ridge_inputs import mixed_precision, solve
from tabicl_linear.ridge_inputs.devices import has_slow_float64
from tabicl_linear.ridge_inputs.mixed_precision import exact, refined

SIZE = 40


def system(condition: float):
    """Two systems whose eigenvalues go from 1 to 1 / condition, and sums of labels."""
    g = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(2, SIZE, SIZE, generator=g, dtype=torch.float64))
    gram = basis * torch.logspace(0, -12, SIZE, dtype=torch.float64)
    right = torch.randn(2, SIZE, 3, generator=g, dtype=torch.float64)
    right[..., 2] = 0  # a class that does not occur
    added = torch.tensor([[1.0], [1 / condition]], dtype=torch.float64)
    return gram @ basis.mT, added, right


@pytest.mark.parametrize("condition", [1e1, 1e3, 1e5])
def test_refined_solutions_are_those_in_float64(condition):
    gram, added, right = system(condition)
    with messages_of(mixed_precision.__name__) as messages:
        result, truth = (f(gram, added, right).solutions for f in (refined, exact))
    assert messages == []
    for mine, its in zip(result.flatten(0, 1), truth.flatten(0, 1), strict=True):
        assert_close(mine, its, ROUNDING)
    assert not torch.equal(result, truth)
    assert (result[..., 2] == 0).all()


@pytest.mark.parametrize("condition", [1e8, 1e10])
def test_systems_that_do_not_converge_are_solved_in_float64_and_said(condition):
    gram, added, right = system(condition)
    with messages_of(mixed_precision.__name__) as messages:
        result, truth = refined(gram, added, right), exact(gram, added, right)
        assert all(map(torch.equal, result, truth))
    (line,) = messages
    assert "4 systems of 40 features" in line


def test_what_is_not_solved_is_not_a_number():
    gram, added, right = system(1e3)
    gram[1, 2, 2] = -9
    result = refined(gram, added, right).solutions
    assert result[:, 1].isnan().all()
    assert result[:, 0].isfinite().all()


def test_predictions_on_slow_devices_are_the_same(monkeypatch):
    features, targets = table(150)
    truth, _ = empty(features, LOGISTIC).write(features, targets, LOGISTIC)
    monkeypatch.setattr(solve, "has_slow_float64", lambda device: True)
    result, _ = empty(features, LOGISTIC).write(features, targets, LOGISTIC)
    assert_close(result.shares, truth.shares, ROUNDING)
    assert not torch.equal(result.shares, truth.shares)


SLOW, FAST = ((7, 5), (8, 6), (8, 9), (12, 0)), ((7, 0), (8, 0), (9, 0))


@pytest.mark.parametrize("capability", [*SLOW, *FAST])
def test_cards_with_few_units_for_float64_are_told_by_their_capability(monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert has_slow_float64(torch.device("cuda")) is (capability in SLOW)
    assert not has_slow_float64(torch.device("cpu"))
