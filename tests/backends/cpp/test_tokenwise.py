"""Token-wise functions in C++ against PyTorch in float64: values, gradients, shapes and dtypes."""

import math

import pytest
import torch
import torch.nn.functional as F
from tolerances import RMS, assert_close

from tabicl_linear.backends.cpp import tokenwise as cpp
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.nn import tokenwise

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"not built: {unavailable()}")

WIDTHS = (3, 5, 16, 20, 80, 320)
DTYPES = (torch.float32, torch.bfloat16)


def norm(kernels):
    return lambda x, weight: (kernels.rms_norm(x, weight, 1e-6),)


def gated(kernels):
    return lambda x, weight: (kernels.swiglu(x),)


def features(kernels):
    return lambda x, weight: kernels.delta_features(x)


SHAPES = {norm: (3, 7, 1), gated: (3, 7, 2), features: (2, 5, 3, 4, 1)}


def inputs(function, width, dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    *rows, last = SHAPES[function]
    x = (2 * torch.randn(*rows, last * width, generator=g)).to(dtype)
    return x, torch.randn(width, generator=g)


def run(function, kernels, x, weight, seeds):
    """Results, and gradients of their projections on random directions."""
    x, weight = (z.detach().clone().requires_grad_() for z in (x, weight))
    results = function(kernels)(x, weight)
    loss = sum((y * seed.to(y.dtype)).sum() for y, seed in zip(results, seeds, strict=False))
    wanted = [x, weight] if function is norm else [x]
    return results, torch.autograd.grad(loss, wanted)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("function", SHAPES)
def test_values_and_gradients_are_those_of_float64(function, width, dtype, threads, monkeypatch):
    monkeypatch.setattr(cpp, "FEW", 0 if threads > 1 else 1 << 30)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    x, weight = inputs(function, width, dtype)
    try:
        seeds = [torch.randn(y.shape) for y in function(tokenwise)(x, weight)]
        actual, gradients = run(function, cpp, x, weight, seeds)
        expected, truths = run(
            function, tokenwise, x.double(), weight.double(), [s.double() for s in seeds]
        )
    finally:
        torch.set_num_threads(before)
    for a, e in zip((*actual, *gradients), (*expected, *truths), strict=True):
        assert_close(a.double(), e, RMS[a.dtype])


@pytest.mark.parametrize("function", SHAPES)
def test_strides_do_not_matter(function):
    x, weight = inputs(function, 20, torch.float32)
    strided = torch.stack([x, x], dim=-1)[..., 0]
    assert not strided.is_contiguous()
    for a, b in zip(
        function(cpp)(strided, weight),
        function(cpp)(x, weight),
        strict=True,
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize("function", SHAPES)
def test_strides_of_gradients_do_not_matter(function):
    """Where the gradient is copied, the copy must live until it has been read."""
    x, weight = inputs(function, 320, torch.float32)
    seeds = [torch.randn(y.shape) for y in function(tokenwise)(x, weight)]
    strided = [torch.stack([seed, seed], dim=-1)[..., 0] for seed in seeds]
    wanted = x.requires_grad_()
    gradients = [
        torch.autograd.grad(function(cpp)(x, weight), wanted, given)[0]
        for given in (strided, seeds)
    ]
    assert not any(seed.is_contiguous() for seed in strided)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("function", SHAPES)
def test_results_do_not_depend_on_threads(function, monkeypatch):
    x, weight = inputs(function, 33, torch.float32)
    seeds = [torch.randn(y.shape) for y in function(cpp)(x, weight)]
    outcomes, before = [], torch.get_num_threads()
    monkeypatch.setattr(cpp, "FEW", 0)
    for threads in (1, 3):
        torch.set_num_threads(threads)
        results, gradients = run(function, cpp, x, weight, seeds)
        outcomes.append((*results, *gradients))
    torch.set_num_threads(before)
    assert all(map(torch.equal, *outcomes))


@pytest.mark.parametrize("function", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_dtypes_go_to_pytorch(function, dtype):
    x, weight = inputs(function, 8, dtype)
    weight = weight.to(dtype)
    for a, b in zip(
        function(cpp)(x, weight),
        function(tokenwise)(x, weight),
        strict=True,
    ):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("function", SHAPES)
def test_tables_without_rows(function):
    x, weight = inputs(function, 8, torch.float32)
    for a, b in zip(
        function(cpp)(x[:0], weight),
        function(tokenwise)(x[:0], weight),
        strict=True,
    ):
        assert a.shape == b.shape


def test_only_some_of_the_features_may_be_used():
    x, _ = inputs(features, 16, torch.float32)
    x.requires_grad_()
    q, _, v = cpp.delta_features(x)
    (dx,) = torch.autograd.grad(q.sum() + v.sum(), x)
    assert (dx[:, :, 1] == 0).all()
    assert (dx[:, :, [0, 2]] != 0).any(-1).all()


def test_extreme_numbers():
    """Beyond the range of exp the slope is flat; what is not finite stays so."""
    values = torch.tensor([1e30, 100.0, 88.0, 0.0, -88.0, -100.0, -1e30, math.nan, math.inf])
    gate_and_up = torch.stack([values, torch.ones_like(values)], dim=-1)
    y = cpp.swiglu(gate_and_up)[:, 0]
    assert torch.equal(y[:4], values[:4])
    assert (y[4:7].abs() < 1e-6).all()
    assert y[7].isnan()
    assert y[8].isinf()
    assert cpp.swiglu(gate_and_up.bfloat16())[7].isnan()
    assert cpp.rms_norm(torch.tensor([[1.0, math.nan]]), torch.ones(2), 1e-6).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_is_right_for_every_size_of_number(dtype):
    """To float32's rounding, or less than what exp can hold where it underflows."""
    sizes = torch.cat([2.0 ** torch.arange(-126, 128).float(), torch.linspace(80, 110, 601)])
    x = torch.cat([-1.75 * sizes, -sizes, sizes, 1.75 * sizes]).to(dtype)
    x = torch.cat([x, torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0]).to(dtype)])
    gate_and_up = torch.stack([x, torch.ones_like(x)], dim=-1).requires_grad_()
    y = cpp.swiglu(gate_and_up)
    (slope,) = torch.autograd.grad(y.sum(), gate_and_up)
    exact = x.double().requires_grad_()
    z = F.silu(exact)
    (exact_slope,) = torch.autograd.grad(z.sum(), exact)
    for actual, expected in ((y[:, 0], z.detach()), (slope[:, 0], exact_slope)):
        torch.testing.assert_close(
            actual.double()[:-5], expected[:-5], rtol=torch.finfo(dtype).eps * 4, atol=1e-35
        )
    assert torch.equal(y[-5:, 0].isnan(), F.silu(x[-5:]).isnan())
    assert torch.equal(y[-5:, 0].nan_to_num(7.0), F.silu(x[-5:]).nan_to_num(7.0))


def test_under_autocast_norms_hand_on_what_matrix_products_take():
    x, weight = inputs(norm, 20, torch.float32)
    whole = cpp.rms_norm(x, weight, 1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(cpp.rms_norm(x, weight, 1e-6), whole.bfloat16())
    with torch.autocast("cpu", torch.float16):
        assert cpp.rms_norm(x, weight, 1e-6).dtype == torch.float32
