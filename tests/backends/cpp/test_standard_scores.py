"""Cells in units of their columns' deviations in C++, against PyTorch."""

import pytest
import torch
from tolerances import CONTRACT, assert_close

from tabicl_linear.backends.cpp import standard_scores as cpp
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.kernels import standard_scores as plain

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"not built: {unavailable()}")


def table(tasks=2, rows=70, columns=5):
    """Rows of all sizes, and what columns are scaled by."""
    g = torch.Generator().manual_seed(rows)
    x = torch.randn(tasks, rows, columns, generator=g, dtype=torch.float64)
    x *= 10.0 ** torch.randint(-2, 4, x.shape, generator=g)
    fill, mean = torch.randn(2, tasks, columns, generator=g, dtype=torch.float64)
    lower, upper = mean - 4, mean + 4
    lower[:, 1:2], upper[:, 1:2] = -torch.inf, torch.inf
    factor = torch.rand(tasks, columns, generator=g, dtype=torch.float64)
    factor[:, :1] = 0
    return x, (fill, lower, upper, mean, factor, torch.arange(1.0, tasks + 1).double())


def assert_same(x, by):
    result, expected = cpp.standard_scores(x, *by), plain.standard_scores(x, *by)
    assert result.dtype == expected.dtype == x.dtype
    assert torch.equal(result.isnan(), expected.isnan())
    assert_close(result.nan_to_num(), expected.nan_to_num(), CONTRACT)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", [(2, 70, 5), (1, 1, 1), (3, 600, 40)])
def test_it_is_what_pytorch_computes(shape, dtype, threads, monkeypatch):
    monkeypatch.setattr(cpp.torch, "get_num_threads", lambda: threads)
    x, by = table(*shape)
    assert_same(x.to(dtype), by)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_missing_and_huge_values(dtype):
    x, by = table()
    x[0, :5, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e200, -1e200])
    x[1, :5, 1] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30])
    assert_same(x.to(dtype), by)


def test_parts_of_larger_tensors():
    x, by = table()
    wide = torch.nn.functional.pad(x, (1, 2, 3, 0))
    result = cpp.standard_scores(wide[:, 3:, 1:-2], *by)
    assert torch.equal(result, cpp.standard_scores(x, *by))


def test_no_rows_have_no_scores():
    x, by = table()
    assert cpp.standard_scores(x[:, :0], *by).shape == (2, 0, 5)


def test_half_precision_goes_to_pytorch():
    x, by = table()
    x = x.bfloat16()
    assert torch.equal(cpp.standard_scores(x, *by), plain.standard_scores(x, *by))


def test_statistics_of_half_as_many_bits_go_to_pytorch():
    """C++ would read two of them as one."""
    x, by = table()
    by = tuple(part.float() for part in by)
    assert torch.equal(cpp.standard_scores(x, *by), plain.standard_scores(x, *by))
