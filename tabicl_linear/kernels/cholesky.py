"""Cholesky factors of many matrices, without a check that each exists.

A check makes the host wait for the device. Instead, the factor of a matrix that has none is NaN,
and so is everything that is solved with it.
"""

import torch

from tabicl_linear.kernels.triangular import squared_lengths
from tabicl_linear.types import Float, Tensor


def factored_(matrices: Float[Tensor, "*b k k"]) -> Float[Tensor, "*b k k"]:
    """Replace symmetric matrices by their lower Cholesky factors, in place.

    A factor that does not exist has NaN on its diagonal. Values above the diagonal are undefined.
    """
    # LAPACK is column-major: passing the transposes, which are equal for symmetric matrices, avoids
    # a copy. In place, as torch's copy of the lower half takes longer than the factors.
    factors = matrices.mT
    failed = torch.empty(factors.shape[:-2], dtype=torch.int32, device=factors.device)
    torch.linalg.cholesky_ex(factors, out=(factors, failed))
    factors.diagonal(dim1=-2, dim2=-1).masked_fill_((failed != 0).unsqueeze(-1), torch.nan)
    return factors


def shifted(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], dtype: torch.dtype | None = None
) -> Float[Tensor, "p b k k"]:
    """G + c I for each number c in `added`; in the dtype of `gram` (G) by default."""
    sums = gram.expand(len(added), -1, -1, -1).to(dtype or gram.dtype, copy=True)
    sums.diagonal(dim1=-2, dim2=-1).add_(added.unsqueeze(-1))
    return sums


def solved(
    factors: Float[Tensor, "p b k k"], right: Float[Tensor, "*p b k y"]
) -> Float[Tensor, "p b k y"]:
    """Solve LL'X = R for X; unlike `cholesky_solve`, this does not copy all factors first."""
    right = right.expand(len(factors), *right.shape[-3:])
    half = torch.linalg.solve_triangular(factors, right, upper=False)
    solution: Tensor = torch.linalg.solve_triangular(factors.mT, half, upper=True)
    return solution


def shifted_solutions(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], right: Float[Tensor, "b k y"]
) -> tuple[Float[Tensor, "p b k y"], Float[Tensor, "p b k"]]:
    """Solve (G + c I) X = R for X, and compute the diagonal of (G + c I)^-1, for every c.

    Args:
        gram: Symmetric matrices G.
        added: The numbers c.
        right: Right-hand sides R.

    Returns:
        X and the diagonals; NaN where G + c I is not positive definite.
    """
    factors = factored_(shifted(gram, added))
    diagonals = torch.stack([squared_lengths(each) for each in factors])
    return solved(factors, right), diagonals
