"""Quadratic forms by lengths of solutions, against inverses."""

import torch

from tabicl_linear.kernels.triangular import squared_lengths


def systems(size=9, tasks=2):
    g = torch.Generator().manual_seed(size)
    rows = torch.randn(tasks, 2 * size, size, generator=g, dtype=torch.float64)
    return rows.mT @ rows, torch.randn(tasks, size, 5, generator=g, dtype=torch.float64)


def test_lengths_are_quadratic_forms_of_the_inverse():
    matrices, right = systems()
    # What stands above the diagonal is not read.
    factors = torch.linalg.cholesky(matrices) + torch.ones(9, 9).triu(1)
    expected = torch.einsum("bkn,bkl,bln->bn", right, matrices.inverse(), right)
    torch.testing.assert_close(squared_lengths(factors, right), expected)


def test_those_of_the_identity_are_the_diagonal_of_the_inverse():
    matrices, _ = systems()
    result = squared_lengths(torch.linalg.cholesky(matrices))
    torch.testing.assert_close(result, matrices.inverse().diagonal(dim1=1, dim2=2))
