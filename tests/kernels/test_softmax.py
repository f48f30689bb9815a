"""Softmax attention with a growing memory against the token-by-token reference."""

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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", [1, 17, 100])
def test_scan_and_gradients_equal_the_reference(length, dtype):
    x = Streams(*(z.requires_grad_() for z in _streams(length, dtype=dtype)[:3]))
    y = Streams(*(z.detach().double().requires_grad_() for z in x[:3]))
    outputs, memory = RULE.scan(x)
    expected = reference.softmax(y.q, y.k, y.v, causal=True)
    weight = torch.randn_like(expected)
    (outputs.double() * weight).sum().backward()
    (expected * weight).sum().backward()
    assert_close(outputs, expected, RMS[dtype])
    for a, b in zip(x[:3], y[:3], strict=True):
        assert_close(a.grad, b.grad, RMS[dtype]) if length > 1 or b is y.v else None
    assert torch.equal(memory.keys, x.k)


def test_splitting_composes_and_read_sees_everything():
    x = _streams(30)
    whole, final = RULE.scan(x)
    head, middle = RULE.scan(Streams(*(z[:, :11] for z in x[:3])))
    tail, end = RULE.scan(Streams(*(z[:, 11:] for z in x[:3])), middle)
    assert_close(torch.cat([head, tail], 1), whole, CONTRACT)
    assert torch.equal(end.keys, final.keys)
    assert_close(RULE.read(x.q, final), reference.softmax(x.q, x.k, x.v, causal=False), CONTRACT)


def test_step_equals_appending_one_token_alone():
    memory, x = RULE.fold(_streams(20)), _streams(5, seed=1)
    together = RULE.step(x, memory)
    for i in range(5):
        alone, _ = RULE.scan(Streams(*(z[:, i : i + 1] for z in x[:3])), memory)
        assert_close(together[:, i : i + 1], alone, CONTRACT)


def test_reads_do_not_depend_on_the_order_of_the_memory():
    x, order = _streams(20), torch.randperm(20)
    shuffled = Streams(x.q, x.k[:, order], x.v[:, order])
    assert_close(RULE.read(x.q, RULE.fold(shuffled)), RULE.read(x.q, RULE.fold(x)), CONTRACT)
