"""Softmax attention with a growing state against the token-by-token reference."""

import pytest
import torch
from tolerances import CONTRACT, RMS, assert_close

from tabicl_linear.kernels import reference
from tabicl_linear.kernels.softmax import SoftmaxRule
from tabicl_linear.kernels.streams import Streams

RULE = SoftmaxRule()


def _streams(length, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    draw = lambda e: torch.randn(2, length, 2, e, generator=g, dtype=torch.float64).to(dtype)  # noqa: E731
    return Streams(draw(6), draw(6), draw(5))


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 100, 1000])
def test_scan_and_gradients_equal_the_reference(length, dtype, with_state):
    x = Streams(*(z.requires_grad_() for z in _streams(length, dtype=dtype)[:3]))
    y = Streams(*(z.detach().double().requires_grad_() for z in x[:3]))
    start, before = None, _streams(9, seed=1, dtype=dtype)
    k, v = y.k, y.v
    if with_state:
        start = RULE.fold(before)
        k = torch.cat([before.k.double(), k], 1)
        v = torch.cat([before.v.double(), v], 1)
    outputs, state = RULE.scan(x, start)
    expected = reference.softmax(y.q, k, v, causal=True)
    weight = torch.randn_like(expected)
    (outputs.double() * weight).sum().backward()
    (expected * weight).sum().backward()
    assert_close(outputs, expected, RMS[dtype])
    assert_close(x.v.grad, y.v.grad, RMS[dtype])
    if length > 1 or with_state:  # a lone token has weight one whatever its query and key
        assert_close(x.q.grad, y.q.grad, RMS[dtype])
        assert_close(x.k.grad, y.k.grad, RMS[dtype])
    assert torch.equal(state.keys[:, -length:], x.k)


def test_splitting_composes_and_read_sees_everything():
    x = _streams(30)
    whole, final = RULE.scan(x)
    head, middle = RULE.scan(Streams(*(z[:, :11] for z in x[:3])))
    tail, end = RULE.scan(Streams(*(z[:, 11:] for z in x[:3])), middle)
    assert_close(torch.cat([head, tail], 1), whole, CONTRACT)
    assert torch.equal(end.keys, final.keys)
    assert_close(RULE.read(x.q, final), reference.softmax(x.q, x.k, x.v, causal=False), CONTRACT)


def test_step_equals_appending_one_token_alone():
    state, x = RULE.fold(_streams(20)), _streams(5, seed=1)
    together = RULE.peek(x, state)
    for i in range(5):
        alone, _ = RULE.scan(Streams(*(z[:, i : i + 1] for z in x[:3])), state)
        assert_close(together[:, i : i + 1], alone, CONTRACT)


@pytest.mark.parametrize("lowered", [False, True])
def test_scores_of_a_step_are_float32_for_inputs_in_16_bits(lowered):
    x = Streams(*(z.bfloat16() for z in _streams(20, seed=1)[:3]))
    state = RULE.fold(Streams(*(z.bfloat16() for z in _streams(2000)[:3])))
    with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
        outputs = RULE.peek(x, state)
    for i in range(20):
        k = torch.cat([state.keys, x.k[:, i : i + 1]], 1)
        v = torch.cat([state.values, x.v[:, i : i + 1]], 1)
        expected = reference.softmax(x.q[:, i : i + 1], k, v, causal=False)
        assert_close(outputs[:, i : i + 1], expected, RMS[torch.bfloat16])


def test_reads_do_not_depend_on_the_order_of_the_cache():
    x, order = _streams(20), torch.randperm(20)
    shuffled = Streams(x.q, x.k[:, order], x.v[:, order])
    assert_close(RULE.read(x.q, RULE.fold(shuffled)), RULE.read(x.q, RULE.fold(x)), CONTRACT)
