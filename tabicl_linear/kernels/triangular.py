"""Lengths of the columns of L^-1 R for lower triangular L, in plain PyTorch.

With the Cholesky factor L of A, their squares are quadratic forms: r' A^-1 r = |L^-1 r|^2.
"""

import torch

from tabicl_linear.types import Float, Tensor


def squared_lengths(
    factors: Float[Tensor, "b k k"], right: Float[Tensor, "b k n"] | None = None
) -> Float[Tensor, "b n"]:
    """Squared lengths of the columns of L^-1 R.

    Args:
        factors: L; values above the diagonal are not read.
        right: R; None for the identity, for which the result is the diagonal of (LL')^-1.
    """
    if right is None:
        right = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    columns = torch.linalg.solve_triangular(factors, right, upper=False)
    lengths: Tensor = torch.linalg.vector_norm(columns, dim=-2)
    return lengths.square()
