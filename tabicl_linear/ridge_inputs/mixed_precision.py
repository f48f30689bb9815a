"""Float64 solutions from float32 factors, for cards that do little in float64.

With a float32 factor of A = G + c I, X is corrected by what the factor makes of the residual
R - A X in float64. Each step leaves about cond(A) * 6e-8 of the error (iterative refinement,
Wilkinson 1963), so it converges where cond(A) is below about 1e6: up to tens of thousands of rows.
"""

import logging

import torch

from tabicl_linear.kernels.cholesky import factored_, shifted, solved
from tabicl_linear.types import Float, Tensor

STEPS = 8
ENOUGH = 1e-8
"""A last correction of at most so much of a solution, by length: it has converged. What is left is
less than the correction, and rounding in float64."""

_log = logging.getLogger(__name__)


def exact(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], right: Float[Tensor, "b k y"]
) -> Float[Tensor, "p b k y"]:
    """X of (G + c I) X = R for every c, in the dtype of `gram`; NaN where there is none."""
    return solved(factored_(shifted(gram, added)), right)


def refined(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], right: Float[Tensor, "b k y"]
) -> Float[Tensor, "p b k y"]:
    """The same for float64 systems, from factors in float32.

    If a column of any of the systems has not converged after `STEPS` corrections, all are solved
    by `exact`, and a log line says so. Finding that out makes the host wait once.
    """
    factors = factored_(shifted(gram.float(), added.float()))
    solution = correction = solved(factors, right.float()).double()
    for _ in range(STEPS):
        residual = right - gram @ solution - added[..., None, None] * solution
        correction = solved(factors, residual.float()).double()
        solution = solution + correction
    lengths = (torch.linalg.vector_norm(z, dim=-2) for z in (correction, solution))
    correction_length, length = lengths
    if (correction_length <= ENOUGH * length).all():
        return solution
    _log.info(
        "Ridge inputs: %d systems of %d features are too ill-conditioned for float32 factors and "
        "are solved in float64.",
        len(added) * len(gram),
        gram.shape[-1],
    )
    return exact(gram, added, right)
