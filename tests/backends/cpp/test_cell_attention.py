"""Attention across cells in C++ against PyTorch in float64: values, gradients and dtypes."""

import math

import pytest
import torch
from tolerances import RMS, assert_close

from tabicl_linear.backends.cpp import cell_attention as cpp
from tabicl_linear.backends.cpp import tokenwise
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.kernels import cell_attention

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"not built: {unavailable()}")

GROUPS, ROWS, HEADS = 2, 7, 3


def inputs(num_cells, dim=32, dtype=torch.float32, size=2.0):
    g = torch.Generator().manual_seed(0)
    qkv = size * torch.randn(GROUPS * num_cells, ROWS, 3, HEADS, dim, generator=g)
    seed = torch.randn(GROUPS * num_cells, ROWS, HEADS, dim, generator=g)
    return qkv.to(dtype), seed.to(dtype)


def run(module, qkv, seed, num_cells):
    """Values, and the gradient of their projection on a direction."""
    qkv = qkv.detach().requires_grad_()
    heads = module.attend_across_cells(qkv, num_cells)
    return heads, torch.autograd.grad(heads, qkv, seed)[0]


def assert_right(qkv, seed, num_cells):
    actual = run(cpp, qkv, seed, num_cells)
    expected = run(cell_attention, qkv.double(), seed.double(), num_cells)
    assert all(a.dtype == qkv.dtype for a in actual)
    for a, e in zip(actual, expected, strict=True):
        assert_close(a.double(), e, RMS[qkv.dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [3, 16, 20, 32, 80, 128])
@pytest.mark.parametrize("num_cells", [1, 2, 3, 4, 5, 10, 15, 16])
def test_values_and_gradients_are_those_of_float64(num_cells, dim, dtype):
    assert_right(*inputs(num_cells, dim, dtype), num_cells)


@pytest.mark.parametrize(("num_cells", "dim"), [(17, 32), (4, 129)])
def test_more_or_wider_cells_go_to_pytorch(num_cells, dim):
    qkv, seed = inputs(num_cells, dim)
    assert all(
        map(torch.equal, run(cpp, qkv, seed, num_cells), run(cell_attention, qkv, seed, num_cells))
    )
    assert_right(qkv, seed, num_cells)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_dtypes_go_to_pytorch(dtype):
    qkv, seed = inputs(4, dtype=dtype)
    assert all(map(torch.equal, run(cpp, qkv, seed, 4), run(cell_attention, qkv, seed, 4)))


def test_large_scores_choose_one_cell():
    qkv, seed = inputs(6, size=7.0)
    assert_right(qkv, seed, 6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_stays_so_in_its_own_row_and_head(value):
    qkv, _ = inputs(4)
    expected = cpp.attend_across_cells(qkv, 4)
    qkv[5, 3, 1, 2, 0] = value
    heads = cpp.attend_across_cells(qkv, 4)
    touched = torch.zeros_like(heads, dtype=torch.bool)
    touched[4:, 3, 2] = True
    assert torch.equal(heads[~touched], expected[~touched])
    assert torch.equal(heads.isnan(), cell_attention.attend_across_cells(qkv, 4).isnan())


@pytest.mark.parametrize("num_cells", [3, 10])
def test_strides_and_threads_do_not_matter(num_cells, monkeypatch):
    qkv, seed = inputs(num_cells)
    expected, before = run(cpp, qkv, seed, num_cells), torch.get_num_threads()
    apart = [torch.stack([z, z], dim=-1)[..., 0] for z in (qkv, seed)]
    assert not any(z.is_contiguous() for z in apart)
    assert all(map(torch.equal, run(cpp, *apart, num_cells), expected))
    monkeypatch.setattr(tokenwise, "FEW", 0)
    torch.set_num_threads(3)
    try:
        assert all(map(torch.equal, run(cpp, qkv, seed, num_cells), expected))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(0, 4), (6, 0)])
def test_nothing_is_read_where_there_is_nothing(shape):
    assert cpp.attend_across_cells(torch.zeros(*shape, 3, 2, 6), 3).shape == (*shape, 2, 6)
