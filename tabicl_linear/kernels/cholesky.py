"""Cholesky factors of many matrices, without asking after each whether it worked.

Asking makes the host wait for the device. So where a matrix has no factor there is NaN, which
reaches everything that is solved with it.
"""

import torch

from tabicl_linear.kernels.triangular import squared_lengths
from tabicl_linear.types import Float, Tensor


def factored_(matrices: Float[Tensor, "*b k k"]) -> Float[Tensor, "*b k k"]:
    """Lower Cholesky factors in place of symmetric matrices, NaN on the diagonal where none exist.

    What stands above the diagonal afterwards is undefined.
    """
    # LAPACK reads columns: transposed, which changes nothing here, no element has to move. In
    # place: copying the lower half, element by element, takes torch longer than the factors take.
    factors = matrices.mT
    failed = torch.empty(factors.shape[:-2], dtype=torch.int32, device=factors.device)
    torch.linalg.cholesky_ex(factors, out=(factors, failed))
    factors.diagonal(dim1=-2, dim2=-1).masked_fill_((failed != 0).unsqueeze(-1), torch.nan)
    return factors


def shifted(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], dtype: torch.dtype | None = None
) -> Float[Tensor, "p b k k"]:
    """A copy for each number, which is added to the diagonal; in the dtype of `gram` by default."""
    sums = gram.expand(len(added), -1, -1, -1).to(dtype or gram.dtype, copy=True)
    sums.diagonal(dim1=-2, dim2=-1).add_(added.unsqueeze(-1))
    return sums


def solved(
    factors: Float[Tensor, "p b k k"], right: Float[Tensor, "*p b k y"]
) -> Float[Tensor, "p b k y"]:
    """X of LL'X = R; `cholesky_solve` would copy all factors first."""
    right = right.expand(len(factors), *right.shape[-3:])
    half = torch.linalg.solve_triangular(factors, right, upper=False)
    solution: Tensor = torch.linalg.solve_triangular(factors.mT, half, upper=True)
    return solution


def shifted_solutions(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], right: Float[Tensor, "b k y"]
) -> tuple[Float[Tensor, "p b k y"], Float[Tensor, "p b k"]]:
    """X of (G + c I) X = R and the diagonal of (G + c I)^-1, for every c.

    Args:
        gram: Symmetric G.
        added: Each c.
        right: R.

    Returns:
        Both, NaN where G + c I is not positive definite.
    """
    factors = factored_(shifted(gram, added))
    diagonals = torch.stack([squared_lengths(each) for each in factors])
    return solved(factors, right), diagonals
