"""What is particular to the delta rule."""

import pytest
import torch
import torch.nn.functional as F
from tolerances import CONTRACT, RMS, assert_close, relative_rms

from tabicl_linear.kernels import reference
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.streams import Streams


def _inputs(length, dtype=torch.float64):
    q, v = torch.randn(2, length, 2, 16, dtype=dtype), torch.randn(2, length, 2, 8, dtype=dtype)
    k = F.normalize(torch.randn(2, length, 2, 16, dtype=dtype), dim=-1)
    return q, k, v, torch.rand(2, length, 2, dtype=dtype)


@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("log_gate", [None, -1e-6, -0.1, -20.0])
@pytest.mark.parametrize(("cosine", "beta"), [(0.9, 0.9), (1.0, 0.9), (1.0, 1e-4), (1.0, 0.9999)])
def test_correlated_and_identical_keys_stay_exact_in_float32(cosine, beta, log_gate, chunk_size):
    q, k, v, _ = _inputs(200)
    shared = F.normalize(torch.randn(2, 1, 2, 16, dtype=torch.float64), dim=-1)
    k = F.normalize(cosine**0.5 * shared + (1 - cosine) ** 0.5 * k, dim=-1)
    q, k, v = (z.float() for z in (q, k, v))
    rates = torch.full((2, 200, 2), beta)
    decay = None if log_gate is None else torch.full((2, 200, 2, 1), log_gate)
    outputs, final = DeltaRule(chunk_size).scan(Streams(q, k, v, rates, decay))
    o_true, S_true = reference.delta(q, k, v, beta=rates, log_decay=decay)
    assert_close(outputs, o_true, RMS[torch.float32])
    assert_close(final.S, S_true, RMS[torch.float32])


def test_orthonormal_keys_with_rate_one_are_linear_attention():
    q, _, v, _ = _inputs(16)
    k = torch.eye(16, dtype=torch.float64)[None, :, None].expand(2, 16, 2, 16)
    x = Streams(q, k, v, torch.ones(2, 16, 2, dtype=torch.float64))
    delta, linear = DeltaRule().scan(x), AdditiveRule().scan(x)
    assert_close(delta[0], linear[0], CONTRACT)
    assert_close(delta[1].S, linear[1].S, CONTRACT)


def test_a_gate_of_one_changes_nothing():
    q, k, v, beta = _inputs(50)
    plain = DeltaRule().scan(Streams(q, k, v, beta))
    gated = DeltaRule().scan(Streams(q, k, v, beta, torch.zeros(2, 50, 2, 1, dtype=q.dtype)))
    assert_close(gated[0], plain[0], CONTRACT)
    assert_close(gated[1].S, plain[1].S, CONTRACT)


def test_order_matters_for_delta_and_not_for_linear():
    q, k, v, beta = _inputs(50)
    order = torch.randperm(50)
    x, y = Streams(q, k, v, beta), Streams(q[:, order], k[:, order], v[:, order], beta[:, order])
    assert relative_rms(DeltaRule().fold(x).S, DeltaRule().fold(y).S) > 1e-2
    assert_close(AdditiveRule().fold(x).S, AdditiveRule().fold(y).S, CONTRACT)
