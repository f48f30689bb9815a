"""Shifted systems against inverses."""

import torch

from tabicl_linear.kernels.cholesky import shifted_solutions


def systems(size=9, tasks=3):
    g = torch.Generator().manual_seed(size)
    rows = torch.randn(tasks, size, 2 * size, generator=g, dtype=torch.float64)
    return rows @ rows.mT, torch.randn(tasks, size, 4, generator=g, dtype=torch.float64)


def test_solutions_and_diagonals_are_those_of_the_inverse():
    gram, right = systems()
    added = torch.tensor([[0.1], [2.0]], dtype=torch.float64)
    solutions, diagonals = shifted_solutions(gram, added, right)
    inverses = (gram + added[..., None, None] * torch.eye(9)).inverse()
    torch.testing.assert_close(solutions, inverses @ right)
    torch.testing.assert_close(diagonals, inverses.diagonal(dim1=-2, dim2=-1))


def test_what_has_no_factor_is_nan():
    gram, right = systems()
    gram[1] = -gram[1]
    added = torch.tensor([[0.1]], dtype=torch.float64)
    for result in shifted_solutions(gram, added, right):
        assert result[:, 1].isnan().all()
        assert result[:, ::2].isfinite().all()
