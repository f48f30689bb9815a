"""The C++ kernels: against float64 references, whatever shape, stride, thread or gradient."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from kernels.cases import LENGTHS, MATRIX_CASES, initial, map_streams, streams, truth
from tolerances import RMS, ROUNDING, assert_close

from tabicl_linear.backends import using
from tabicl_linear.backends.cpp import loader, rules
from tabicl_linear.backends.self_test import computed_by
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.kernels.streams import Streams

ROOT = Path(__file__).parents[3]
CASES = MATRIX_CASES
FLOAT32 = RMS[torch.float32]
built = pytest.mark.skipif(
    loader.unavailable() is not None, reason=f"not built: {loader.unavailable()}"
)


class _InCpp:
    """A rule that the C++ kernels compute."""

    def __init__(self, rule):
        kernel = rules.DELTA if isinstance(rule, DeltaRule) else rules.ADDITIVE
        self.rule, self.choice = rule, computed_by(kernel, rule)

    def scan(self, x, state):
        with using(self.choice):
            return self.rule.scan(x, state)

    def fold(self, x, state):
        with using(self.choice):
            return self.rule.fold(x, state)


def _wide(gate, heads=(3, 80, 72), length=70, seed=0):
    """Float64 streams as wide as a model's, and a start."""
    g = torch.Generator().manual_seed(seed)
    h, k, v = heads

    def draw(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    gates = {"none": None, "head": (2, length, h, 1), "channel": (2, length, h, k)}[gate]
    x = Streams(
        q=draw(2, length, h, k),
        k=F.normalize(draw(2, length, h, k), dim=-1),
        v=draw(2, length, h, v),
        beta=draw(2, length, h).sigmoid(),
        log_decay=None if gates is None else F.logsigmoid(draw(*gates)),
    )
    return x, MatrixState(draw(2, h, v, k))


def _gradients(run, x, start, weights):
    """Outputs, final state, and gradients of every input and the start."""
    leaves = [z.detach().clone().requires_grad_() for z in (*x, start.S) if z is not None]
    rest = iter(leaves)
    inputs = Streams(*(None if z is None else next(rest) for z in x))
    results = run(inputs, MatrixState(next(rest)))
    loss = sum(
        (result * w.to(result.dtype)).sum() for result, w in zip(results, weights, strict=True)
    )
    return [*(r.detach() for r in results), *torch.autograd.grad(loss, leaves)]


def _scan(rule):
    def run(x, start):
        outputs, final = rule.scan(x, start)
        return outputs, final.S

    return run


@built
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_scan_and_fold_match_the_reference_with_all_gradients(name, length):
    case = CASES[name]
    x, start = streams(case, length), initial(case)
    rule = _InCpp(case.rule)
    weights = torch.randn_like(x.v), torch.randn_like(start.S)
    single, start32 = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())

    def scan(x, start):
        outputs, final = rule.scan(x, start)
        return outputs, final.S

    actual = _gradients(scan, single, start32, weights)
    expected = _gradients(lambda x, start: truth(case, x, start), x, start, weights)
    assert actual[0].dtype == torch.float32
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert_close(a, b, FLOAT32, f"scan, tensor {i}")
    unread, unread32 = x._replace(q=x.q.detach()), single

    def reference_state(x, start):
        return (truth(case, x._replace(q=torch.zeros_like(x.q)), start)[1],)

    folded = _gradients(
        lambda x, start: (rule.fold(x, start).S + 0 * x.q.sum(),), unread32, start32, weights[1:]
    )
    state = _gradients(
        lambda x, start: (reference_state(x, start)[0] + 0 * x.q.sum(),), unread, start, weights[1:]
    )
    for i, (a, b) in enumerate(zip(folded, state, strict=True)):
        assert_close(a, b, FLOAT32, f"fold, tensor {i}")


@built
@pytest.mark.parametrize("heads", [(1, 1, 1), (2, 16, 33), (3, 80, 72), (1, 97, 130), (1, 128, 64)])
@pytest.mark.parametrize(
    ("rule", "gate"),
    [
        (DeltaRule(), "none"),
        (DeltaRule(), "head"),
        (AdditiveRule(), "none"),
        (AdditiveRule(), "head"),
        (AdditiveRule(), "channel"),
    ],
)
def test_every_width_matches_plain_pytorch_in_float64(rule, gate, heads):
    x, start = _wide(gate, heads)
    weights = torch.randn_like(x.v), torch.randn_like(start.S)

    single, start32 = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    actual = _gradients(_scan(_InCpp(rule)), single, start32, weights)
    expected = _gradients(_scan(rule), x, start, weights)
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert_close(a, b, FLOAT32, f"tensor {i}")


@built
def test_gates_that_underflow_forget_everything_and_have_finite_gradients():
    x, start = _wide("channel")
    x = x._replace(log_decay=torch.full_like(x.log_decay, -200.0))
    weights = torch.randn_like(x.v), torch.randn_like(start.S)
    single, start32 = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())

    actual = _gradients(_scan(_InCpp(AdditiveRule())), single, start32, weights)
    assert all(z.isfinite().all() for z in actual)
    own = (x.q * x.k).sum(-1, keepdim=True) * x.v * x.beta.unsqueeze(-1)
    assert_close(actual[0], own, FLOAT32)


@built
@pytest.mark.parametrize(
    ("value", "tolerance"), [(30.0, FLOAT32), (1e3, ROUNDING), (1e5, ROUNDING), (1e20, ROUNDING)]
)
@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("places", [[150], [5], [20, 40, 200], range(50, 250, 3)])
def test_values_that_were_overwritten_leave_earlier_gradients_alone(places, read, value, tolerance):
    """A state before a large write cannot be had from the one after it: its digits are gone."""
    x, start = _wide("none", (2, 24, 20), length=300)
    for place in places:
        x.v[:, place], x.beta[:, place : place + 2] = value, 1
        x.k[:, place + 1] = x.k[:, place]
    earlier = slice(None, min(places))
    weights = torch.zeros_like(x.v), torch.randn_like(start.S)
    if read:
        weights[0][:, earlier] = torch.randn_like(x.v[:, earlier])
        weights[1].zero_()

    single, start32 = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    actual = _gradients(_scan(_InCpp(DeltaRule())), single, start32, weights)[2:]
    expected = _gradients(_scan(DeltaRule()), x, start, weights)[2:]
    for name, a, b in zip(("q", "k", "v", "beta"), actual[:-1], expected[:-1], strict=True):
        assert_close(a[:, earlier], b[:, earlier], tolerance, name)
    assert_close(actual[-1], expected[-1], tolerance, "start")


@built
def test_any_number_of_threads_gives_the_same_bits(monkeypatch):
    x, start = _wide("head", length=300)
    x, start = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    weights = torch.randn_like(x.v), torch.randn_like(start.S)

    def scan(x, start):
        outputs, final = _InCpp(DeltaRule()).scan(x, start)
        return outputs, final.S

    results = []
    for threads in (1, 2, 7, 64):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(_gradients(scan, x, start, weights))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@built
def test_several_python_threads_may_call_it_at_once():
    x, start = _wide("none", length=200)
    x, start = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    rule = _InCpp(DeltaRule())
    expected = rule.scan(x, start)[0]
    with ThreadPoolExecutor(4) as pool:
        for outputs, _ in pool.map(lambda _: rule.scan(x, start), range(16)):
            assert torch.equal(outputs, expected)


@built
def test_strided_broadcast_and_half_precision_inputs():
    x, start = _wide("head")
    x, start = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    packed = torch.cat([x.q, x.k, x.v], -1)
    q, k, v = packed.split([80, 80, 72], -1)
    k_shared = k[:, :, :1].expand_as(k)
    rule = _InCpp(DeltaRule())
    views = rule.scan(x._replace(q=q, k=k_shared, v=v), start)[0]
    copies = rule.scan(x._replace(k=k_shared.contiguous()), start)[0]
    assert torch.equal(views, copies)
    transposed = x._replace(v=x.v.transpose(1, 3).contiguous().transpose(1, 3))
    assert torch.equal(rule.scan(transposed, start)[0], rule.scan(x, start)[0])
    half = map_streams(torch.Tensor.bfloat16, x)
    outputs, final = rule.scan(half, start)
    assert outputs.dtype == final.S.dtype == torch.float32
    truth = DeltaRule().scan(map_streams(torch.Tensor.double, half), MatrixState(start.S.double()))
    assert_close(final.S, truth[1].S, FLOAT32)
    assert_close(outputs, truth[0], FLOAT32)


@built
def test_only_one_of_the_two_results_may_be_used():
    x, start = _wide("none")
    x, start = map_streams(torch.Tensor.float, x), MatrixState(start.S.float())
    for used in (0, 1):
        grads = []
        for rule in (_InCpp(DeltaRule()), DeltaRule()):
            v, q = x.v.clone().requires_grad_(), x.q.clone().requires_grad_()
            outputs, final = rule.scan(x._replace(v=v, q=q), start)
            loss = (outputs, final.S)[used].square().sum()
            grads.append(
                torch.autograd.grad(loss, (v, q), allow_unused=True, materialize_grads=True)
            )
        for a, b in zip(*grads, strict=True):
            assert_close(a, b, FLOAT32)


@built
def test_what_the_library_does_not_take_goes_to_plain_pytorch():
    x, start = _wide("none")
    assert torch.equal(_InCpp(DeltaRule()).scan(x, start)[0], DeltaRule().scan(x, start)[0])
    x, start = _wide("none", heads=(1, 129, 8))
    single = map_streams(torch.Tensor.float, x)
    start = MatrixState(start.S.float())
    expected = DeltaRule().scan(single, start)[0]
    assert torch.equal(_InCpp(DeltaRule()).scan(single, start)[0], expected)


def test_without_a_compiler_the_build_goes_on_and_the_package_says_what_is_missing(tmp_path):
    missing = {**os.environ, "CC": "/no/such/compiler", "CXX": "/no/such/compiler"}
    options = ["--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp")]
    build = subprocess.run(
        [sys.executable, "setup.py", "build_ext", *options],
        cwd=ROOT,
        env=missing,
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    assert not list(tmp_path.rglob("*.so"))
    shutil.copytree(
        ROOT / "tabicl_linear", tmp_path / "tabicl_linear", ignore=shutil.ignore_patterns("*.so")
    )
    code = "from tabicl_linear.backends.cpp import loader; print(loader.unavailable())"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "no C++ compiler" in said.stdout


@built
def test_a_library_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(loader, "_VERSION", 99)
    assert "another version" in loader.unavailable.__wrapped__()


@built
@pytest.mark.parametrize("field", ["q", "v", "beta", "log_decay"])
def test_streams_of_other_shapes_than_the_keys_are_refused(field):
    """The library would read beyond them."""
    gates = {"beta": torch.rand(2, 5, 3), "log_decay": -torch.rand(2, 5, 3, 1)}
    whole = Streams(*(torch.rand(2, 5, 3, 4) for _ in range(3)), **gates)
    short = whole._replace(**{field: whole._asdict()[field][:, :4]})
    rule = _InCpp(AdditiveRule())
    rule.scan(whole, None)
    with pytest.raises(AssertionError, match="looks at no shapes"):
        rule.scan(short, None)
