"""Triangular and positive definite systems in C++, against PyTorch in float64."""

import pytest
import torch

from tabicl_linear.backends.cpp import triangular as cpp
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.kernels import cholesky, triangular

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


def test_no_columns_have_no_lengths(monkeypatch):
    # What it would write beyond its memory is noticed much later, or never.
    monkeypatch.setattr(cpp, "_solve", lambda *_: pytest.fail("the library was asked"))
    nothing = torch.empty(2, 20, 0, dtype=torch.float64)
    assert cpp.squared_lengths(factors_of(20), nothing).shape == (2, 0)
    assert cpp.squared_lengths(torch.empty(2, 0, 0), torch.empty(2, 0, 3)).eq(0).all()


def test_other_dtypes_go_to_pytorch():
    with pytest.raises(RuntimeError, match="Half"):
        cpp.squared_lengths(factors_of(3).half())


def systems(size, columns, tasks=2):
    """Products of rows, of which there are fewer than features, shifts and right sides."""
    g = torch.Generator().manual_seed(100 * size + columns)
    rows = torch.randn(tasks, size, 2 * size, generator=g, dtype=torch.float64)
    right = torch.randn(tasks, size, columns, generator=g, dtype=torch.float64)
    return rows @ rows.mT, torch.tensor([[0.03], [3.0]], dtype=torch.float64), right


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [*SIZES, 23, 47, 48, 49])
def test_shifted_solutions_are_those_of_lapack(size, threads, monkeypatch):
    """Sizes around stripes of 8 rows and panels of 24, right sides around panels."""
    monkeypatch.setattr(cpp.torch, "get_num_threads", lambda: threads)
    for columns in (1, 2, 8, 9, 24, 25, 50):
        gram, added, right = systems(size, columns)
        expected = cholesky.shifted_solutions(gram, added, right)
        for of_gram, of_right in zip(layouts(gram), layouts(right), strict=True):
            results = cpp.shifted_solutions(of_gram, added, of_right)
            for result, reference in zip(results, expected, strict=True):
                error = torch.linalg.vector_norm(result - reference)
                assert error <= 1e-12 * torch.linalg.vector_norm(reference)


@pytest.mark.parametrize("row", [0, 7, 8, 23, 24, 39])
def test_a_system_without_a_factor_is_nan_and_no_other(row):
    gram, added, right = systems(40, 3)
    gram[1, row, row] = -1.0
    gram[1, row, row + 1 :], gram[1, row + 1 :, row] = 0.0, 0.0
    for result in cpp.shifted_solutions(gram, added - 0.02, right):
        assert result[:, 0].isfinite().all()
        assert result[0, 1].isnan().all()


def test_cells_that_are_nan_are_no_solution():
    gram, added, right = systems(30, 2)
    gram[0, 20, 20] = torch.nan
    solutions, diagonals = cpp.shifted_solutions(gram, added, right)
    assert solutions[:, 0].isnan().all()
    assert diagonals[:, 0].isnan().all()
    assert solutions[:, 1].isfinite().all()


def test_systems_in_float32_go_to_pytorch():
    arguments = [part.float() for part in systems(9, 2)]
    for result, expected in zip(
        cpp.shifted_solutions(*arguments), cholesky.shifted_solutions(*arguments), strict=True
    ):
        assert torch.equal(result, expected)
