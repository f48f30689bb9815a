"""Float64 solutions from float32 factors, which take half the time, and less on many cards.

To solve A X = R with A = G + c I, the residual R - A X is computed in float64, and X is corrected
by the solution of the residual with a float32 factor of A. Each step leaves about cond(A) * 6e-8 of
the error (iterative refinement, Wilkinson 1963), so this converges if cond(A) is below about 1e6:
up to tens of thousands of rows.
"""

import logging
from typing import NamedTuple

import torch

from tabicl_linear.kernels.cholesky import factored_, shifted, solved
from tabicl_linear.types import Float, Tensor

STEPS = 8
ENOUGH = 1e-8
"""A solution has converged if the length of its last correction is at most this part of its own.
The error left is smaller than the correction, plus rounding in float64."""

_log = logging.getLogger(__name__)


class Solved(NamedTuple):
    """Solutions, and the factors that they were computed with.

    Attributes:
        solutions: X of (G + c I) X = R for every c; NaN where there is no solution.
        factors: Lower Cholesky factors of G + c I, float32 if the solutions were refined.
    """

    solutions: Float[Tensor, "p b k y"]
    factors: Float[Tensor, "p b k k"]


def exact(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], right: Float[Tensor, "b k y"]
) -> Solved:
    """Solutions and factors in the dtype of `gram`."""
    factors = factored_(shifted(gram, added))
    return Solved(solved(factors, right), factors)


def refined(
    gram: Float[Tensor, "b k k"],
    added: Float[Tensor, "p 1"],
    right: Float[Tensor, "b k y"],
    *,
    steps: int = STEPS,
) -> Solved:
    """Solutions of float64 systems, from factors in float32.

    If a column of any system has not converged after `steps` corrections, all systems are solved by
    `exact`, and a log line says so. The check makes the host wait for the device, so it is made
    once there, but after each correction on a CPU.

    Each of n steps leaves the same part of the error. So if n steps are enough, factors are good to
    about the n-th root of `ENOUGH`, and so is whatever else is computed with them.
    """
    factors = factored_(shifted(gram, added, torch.float32))
    solutions = solved(factors, right.float()).double()
    has_converged = False
    for step in range(1, steps + 1):
        residual = right - gram @ solutions - added[..., None, None] * solutions
        correction = solved(factors, residual.float()).double()
        solutions = solutions + correction
        if step == steps or gram.device.type == "cpu":
            lengths = (torch.linalg.vector_norm(z, dim=-2) for z in (correction, solutions))
            correction_length, length = lengths
            if has_converged := bool((correction_length <= ENOUGH * length).all()):
                break
    if has_converged:
        return Solved(solutions, factors)
    _log.info(
        "Ridge inputs: %d systems of %d features are too ill-conditioned for float32 factors and "
        "are solved in float64.",
        len(added) * len(gram),
        gram.shape[-1],
    )
    return exact(gram, added, right)
