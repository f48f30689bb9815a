"""Additive states in chunks, in C++: what is particular to them; test_rules.py has the rest."""

import pytest
import torch
import torch.nn.functional as F
from backends.cpp.test_rules import FLOAT32, _gradients, _InCpp, _scan, _wide, built
from kernels.cases import map_streams
from tolerances import RMS, assert_close

from tabicl_linear.backends.cpp import additive
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.state import MatrixState

pytestmark = built
RULE = AdditiveRule()
NAMES = ("outputs", "state", "q", "k", "v", "beta", "log_decay", "start")


def _compare(x, start, tolerance=FLOAT32):
    """Outputs, final state and all gradients in float32 against plain PyTorch in float64."""
    weights = torch.randn_like(x.v), torch.randn_like(start.S)
    single, start32 = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    actual = _gradients(_scan(_InCpp(RULE)), single, start32, weights)
    expected = _gradients(_scan(RULE), x, start, weights)
    names = [n for n in NAMES if n not in ("beta", "log_decay") or getattr(x, n) is not None]
    for name, a, b in zip(names, actual, expected, strict=True):
        assert_close(a, b, tolerance, name)


@pytest.mark.parametrize("gate", ["none", "head"])
@pytest.mark.parametrize("length", [2 * 64 * additive.CHUNK + 17, additive.CHUNK + 1])
def test_states_are_computed_again_in_segments(gate, length):
    """More chunks than one segment keeps the states of."""
    x, start = _wide(gate, (1, 6, 5), length)
    if gate == "head":
        x = x._replace(log_decay=x.log_decay / 500)
    _compare(x, start)


@pytest.mark.parametrize("strength", [1e-4, 3.0, 50.0])
def test_gradients_of_weak_and_strong_gates(strength):
    x, start = _wide("head", (2, 24, 40), 150)
    _compare(x._replace(log_decay=x.log_decay * strength), start)


def test_gates_that_underflow_in_some_places_leave_the_others_exact():
    x, start = _wide("head", (2, 24, 20), 100)
    x.log_decay[:, ::7] = -2000.0
    x.log_decay[:, 50] = -torch.inf
    weights = torch.randn_like(x.v), torch.randn_like(start.S)
    single, start32 = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    actual = _gradients(_scan(_InCpp(RULE)), single, start32, weights)
    assert all(z.isfinite().all() for z in actual)
    x.log_decay[:, 50] = -2000.0
    expected = _gradients(_scan(RULE), x, start, weights)
    for name, a, b in zip(NAMES, actual, expected, strict=True):
        assert_close(a, b, FLOAT32, name)


@pytest.mark.parametrize("gate", ["none", "head"])
def test_inputs_are_read_where_the_projection_left_them(gate):
    x, start = _wide(gate)
    x, start = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    packed = torch.cat([x.q, x.k, x.v], -1)
    q, k, v = packed.split([80, 80, 72], -1)
    shared = k[:, :, :1].expand_as(k)
    views = _InCpp(RULE).scan(x._replace(q=q, k=shared, v=v), start)[0]
    copies = _InCpp(RULE).scan(x._replace(k=shared.contiguous()), start)[0]
    assert torch.equal(views, copies)
    transposed = x._replace(v=x.v.transpose(1, 3).contiguous().transpose(1, 3))
    expected = _InCpp(RULE).scan(x, start)[0]
    assert torch.equal(_InCpp(RULE).scan(transposed, start)[0], expected)


def test_half_precision_inputs_have_states_and_sums_in_float32():
    x, start = _wide("head")
    weights = torch.randn_like(x.v), torch.randn_like(start.S)
    half, start32 = map_streams(torch.Tensor.bfloat16, x), MatrixState(start.S.float())
    exact = map_streams(torch.Tensor.double, half)
    actual = _gradients(_scan(_InCpp(RULE)), half, start32, weights)
    expected = _gradients(_scan(RULE), exact, MatrixState(start32.S.double()), weights)
    assert [z.dtype for z in actual] == [*[torch.float32] * 2, *[torch.bfloat16] * 5, torch.float32]
    for name, a, b in zip(NAMES, actual, expected, strict=True):
        assert_close(a, b, RMS[a.dtype], name)


def test_any_number_of_threads_gives_the_same_bits(monkeypatch):
    x, start = _wide("head", length=300)
    x, start = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    weights = torch.randn_like(x.v), torch.randn_like(start.S)
    results = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(_gradients(_scan(_InCpp(RULE)), x, start, weights))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_keys_of_any_width_are_taken():
    x, start = _wide("none", (1, 200, 8))
    assert additive.takes(map_streams(torch.Tensor.float, x), start.S.float())
    _compare(x, start)
    wide = F.pad(x.log_decay, (0, 0)) if x.log_decay is not None else torch.zeros(2, 70, 1, 200)
    assert not additive.takes(x._replace(log_decay=wide), start.S.float())
