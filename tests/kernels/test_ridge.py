"""Layer-local ridge against its definition, and its limits."""

import pytest
import torch
from tolerances import RMS, assert_close

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels import reference
from tabicl_linear.kernels.ridge import RidgeRule
from tabicl_linear.kernels.streams import Streams


def _streams(length, dtype=torch.float64, key_dim=6):
    draw = lambda e: torch.randn(2, length, 2, e, dtype=torch.float64).to(dtype)  # noqa: E731
    return Streams(draw(key_dim), draw(key_dim).abs(), draw(5))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("regulariser", [3.0, 1e-5])
@pytest.mark.parametrize("length", [1, 5, 50, 63, 100, 1000])
def test_outputs_and_state_equal_the_reference(length, regulariser, dtype):
    x = _streams(length, dtype)
    for penalty, scale in (("scaled", length), ("plain", 1)):
        rule = RidgeRule(penalty, regulariser)
        state = rule.fold(x)
        outputs, S = reference.ridge(x.q, x.k, x.v, penalty=scale * regulariser)
        assert_close(rule.solve(state), S, RMS[torch.float64])
        assert_close(rule.read(x.q, state), outputs, RMS[dtype])


@pytest.mark.parametrize("length", [1, 17, 100])
def test_gradients_equal_those_of_the_reference(length):
    x = Streams(*(z.requires_grad_() for z in _streams(length)[:3]))
    y = Streams(*(z.detach().clone().requires_grad_() for z in x[:3]))
    rule = RidgeRule(regulariser=0.1)
    expected, _ = reference.ridge(y.q, y.k, y.v, penalty=0.1 * length)
    weight = torch.randn_like(expected)
    (rule.read(x.q, rule.fold(x)) * weight).sum().backward()
    (expected * weight).sum().backward()
    for a, b in zip(x[:3], y[:3], strict=True):
        assert_close(a.grad, b.grad, RMS[torch.float64])


def test_folding_pieces_adds_up_in_any_order():
    x, rule = _streams(40), RidgeRule()
    order = torch.randperm(40)
    shuffled = Streams(*(z[:, order] for z in x[:3]))
    pieces = rule.fold(
        Streams(*(z[:, 15:] for z in x[:3])), rule.fold(Streams(*(z[:, :15] for z in x[:3])))
    )
    for other in (rule.fold(shuffled), pieces):
        assert_close(rule.read(x.q, other), rule.read(x.q, rule.fold(x)), RMS[torch.float64])
    assert pieces.rows == 40


def test_a_vanishing_penalty_interpolates_distinct_keys():
    x = _streams(4)
    rule = RidgeRule(regulariser=1e-12)
    assert_close(rule.read(x.k, rule.fold(x)), x.v, 1e-6)
    least_squares = RidgeRule("none")
    assert_close(least_squares.read(x.k, least_squares.fold(x)), x.v, 1e-6)


@pytest.mark.parametrize("penalty", ["scaled", "plain", "none"])
def test_identical_keys_give_the_mean_value(penalty):
    x = _streams(30, torch.float32)
    x = x._replace(k=x.k[:, :1].expand_as(x.k))
    rule = RidgeRule(penalty, 1e-6)
    read = rule.read(x.k[:, :1], rule.fold(x))
    assert_close(read, x.v.double().mean(1, keepdim=True), 1e-5)


def test_gradients_reach_all_inputs():
    x = Streams(*(z.requires_grad_() for z in _streams(7)[:3]))
    rule = RidgeRule(regulariser=0.1)
    assert torch.autograd.gradcheck(
        lambda q, k, v: rule.read(q, rule.fold(Streams(q, k, v))), x[:3]
    )


def test_there_are_no_prefix_reads():
    x = _streams(3)
    assert not RidgeRule().has_prefix_reads
    with pytest.raises(UnsupportedReadout):
        RidgeRule().scan(x)
    with pytest.raises(UnsupportedReadout):
        RidgeRule().peek(x, RidgeRule().fold(x))


def test_sums_are_float64_for_half_precision_inputs():
    x = _streams(50, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        state = RidgeRule().fold(x)
    assert state.gram.dtype == state.cross.dtype == torch.float64
    k = x.k.double().transpose(1, 2)
    assert_close(state.gram, k.mT @ k, RMS[torch.float64])
