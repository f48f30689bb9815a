"""`backends/fla.py` in Triton's interpreter: the kernels of the rules, and their self-test."""

import ops
import pytest
import torch
from ops import OPS, Size
from tolerances import RMS, assert_close

from tabicl_linear.backends import fla, self_test, using
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.mixers.mamba2 import Mamba2

KERNELS = {DeltaRule: fla.DELTA, AdditiveRule: fla.ADDITIVE}
MIXERS = [DeltaNet, GatedDeltaNet, GatedLinearAttention, LinearAttention, Mamba2]


def _gradients(method, rule, x):
    """Results of a method of a rule, and the gradients of a random projection of all of them."""
    leaves = {name: z.detach().requires_grad_() for name, z in x._asdict().items() if z is not None}
    x = x._replace(**leaves)
    streams = Streams(x.q * x.q.shape[-1] ** -0.5, x.k, x.v, x.beta, x.log_decay)
    start = None if x.S is None else MatrixState(x.S)
    if method == "scan":
        o, state = rule.scan(streams, start)
        results = {"output": o, "state": state.S}
    else:
        leaves.pop("q")
        results = {"state": rule.fold(streams, start).S}
    g = torch.Generator().manual_seed(7)
    loss = sum((z * torch.randn(z.shape, generator=g)).sum() for z in results.values())
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return {**results, **dict(zip(leaves, gradients, strict=True))}


def _by_fla(rule):
    """The context in which the library computes a rule."""
    return using(self_test.computed_by(KERNELS[type(rule)], rule))


def _compare(agree, name, method, x):
    rule = OPS[name].rule
    expected = _gradients(method, rule, x)
    with _by_fla(rule):
        gradients = _gradients(method, rule, x)
    agree(f"{name}, backend {method}", gradients, expected)


@pytest.mark.parametrize("length", [1, 3, 63, 65])
@pytest.mark.parametrize("name", OPS)
def test_scan_after_a_state(agree, name, length):
    size = ops.size_of(length)
    _compare(agree, name, "scan", ops.inputs(OPS[name], size, state=True))


@pytest.mark.parametrize("name", OPS)
def test_scan_over_chunks(agree, name):
    """Five chunks of 64 tokens, the last one not whole."""
    x = ops.inputs(OPS[name], Size(1, 300, 1, 16, 16), state=False, gate_power=1 / 16)
    _compare(agree, name, "scan", x)


@pytest.mark.parametrize("length", [3, 65])
@pytest.mark.parametrize("name", OPS)
def test_fold_after_a_state(agree, name, length):
    size = ops.size_of(length)
    _compare(agree, name, "fold", ops.inputs(OPS[name], size, state=True))


def test_scan_of_float16(agree):
    """Inputs that autocast has lowered in part: the kernels get one dtype, results are float32."""
    for name, op in OPS.items():
        x = ops.inputs(op, Size(2, 70, 2, 16, 16), state=True)
        lowered = x._replace(v=x.v.half(), q=x.q.half(), k=x.k.half())
        streams = Streams(lowered.q / 4, lowered.k.float(), lowered.v, x.beta, x.log_decay)
        with _by_fla(op.rule):
            o, state = op.rule.scan(streams, MatrixState(x.S))
        expected, truth = op.rule.scan(streams, MatrixState(x.S))
        assert o.dtype == state.S.dtype == torch.float32, name
        tolerance = self_test.TOLERANCE[torch.float16]
        assert self_test.relative_error(o, expected) < tolerance, name
        assert self_test.relative_error(state.S, truth.S) < tolerance, name


@pytest.mark.parametrize("gates", [0, 1, 16])
def test_sums_do_not_overflow_in_float16(gates):
    ones = torch.full((1, 130, 1, 16), 30.0).half()
    x = Streams(ones, ones, 10 * ones, log_decay=torch.zeros(1, 130, 1, gates) if gates else None)
    with _by_fla(AdditiveRule()):
        o, state = AdditiveRule().scan(x)
    assert state.S.min() == state.S.max() == 130 * 30 * 300
    assert o.dtype == torch.float32
    assert_close(o[:, -1], torch.full_like(o[:, -1], 16 * 30 * 130 * 30 * 300), RMS[torch.float32])


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.__name__)
def test_the_self_test_accepts_the_library(mixer):
    layer = mixer(32, 2)
    with torch.no_grad():
        time = torch.zeros(1, dtype=torch.long)
        x, _ = layer.project(torch.zeros(1, 1, 32), time, None, independent=False)
    kernel, like, device = KERNELS[type(layer.rule)], self_test.layout(x), torch.device("cpu")
    assert self_test.why_not(kernel, layer.rule, like, device, tolerance=RMS[torch.float32]) is None


def test_the_self_test_reports_what_the_library_refuses():
    """Keys of more than 256 channels are an assertion in the library's kernels."""
    wide, narrow = ((1, 300), torch.float32), ((1, 16), torch.float32)
    like = (wide, wide, narrow, ((1,), torch.float32), None)
    reason = self_test.why_not(fla.DELTA, DeltaRule(), like, torch.device("cpu"), tolerance=1e-4)
    assert reason is not None
    assert reason.startswith("AssertionError: ")


def test_the_installed_library_is_found():
    assert fla.unavailable() is None
