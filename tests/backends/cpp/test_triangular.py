"""Lengths of solutions of triangular systems in C++, against PyTorch in float64."""

import pytest
import torch

from tabicl_linear.backends.cpp import triangular as cpp
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.kernels import triangular

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"not built: {unavailable()}")

SIZES = (1, 3, 8, 17, 24, 25, 100, 333)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


def factors_of(size, tasks=2):
    g = torch.Generator().manual_seed(size)
    rows = torch.randn(tasks, 2 * size, size, generator=g, dtype=torch.float64)
    return torch.linalg.cholesky(rows.mT @ rows + torch.eye(size))


def layouts(x):
    """Rows one after the other, columns one after the other, and a corner of something larger."""
    return x, x.mT.contiguous().mT, torch.nn.functional.pad(x, (3, 2, 1, 4))[..., 1:-4, 3:-2]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES)
def test_lengths_are_those_of_float64(size, dtype):
    factors = factors_of(size)
    for columns in SIZES:
        g = torch.Generator().manual_seed(columns)
        right = torch.randn(2, size, columns, generator=g, dtype=torch.float64)
        expected = triangular.squared_lengths(factors, right).to(dtype)
        for factor, of_right in zip(layouts(factors), layouts(right), strict=True):
            result = cpp.squared_lengths(factor.to(dtype), of_right.to(dtype))
            torch.testing.assert_close(result, expected, rtol=TOLERANCE[dtype], atol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES)
def test_the_identity_need_not_be_there(size, dtype):
    factors = factors_of(size)
    expected = triangular.squared_lengths(factors).to(dtype)
    for factor in layouts(factors.to(dtype)):
        above = torch.full((size, size), torch.nan, dtype=dtype).triu(1)
        result = cpp.squared_lengths(factor + above)
        torch.testing.assert_close(result, expected, rtol=TOLERANCE[dtype], atol=0)


def test_a_matrix_without_a_factor_gives_nan():
    factors = factors_of(20)
    factors[1].diagonal().fill_(torch.nan)
    result = cpp.squared_lengths(factors, torch.ones(2, 20, 3, dtype=torch.float64))
    assert result[0].isfinite().all()
    assert result[1].isnan().all()


def test_no_columns_have_no_lengths():
    nothing = torch.empty(2, 20, 0, dtype=torch.float64)
    assert cpp.squared_lengths(factors_of(20), nothing).shape == (2, 0)
    assert cpp.squared_lengths(torch.empty(2, 0, 0), torch.empty(2, 0, 3)).eq(0).all()


def test_other_dtypes_go_to_pytorch():
    with pytest.raises(RuntimeError, match="Half"):
        cpp.squared_lengths(factors_of(3).half())
