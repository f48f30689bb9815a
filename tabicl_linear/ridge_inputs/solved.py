"""Checks whether regressions could be solved, once at the end.

A matrix without a Cholesky factor gives NaN (`kernels/cholesky.py`).
"""

from collections.abc import Iterable

import torch

from tabicl_linear.types import Tensor


def assert_solved(solutions: Iterable[Tensor]) -> None:
    """Raise if a solution has values that are not finite; the host waits for the device once.

    Raises:
        torch.linalg.LinAlgError: Some values are not finite.
    """
    finite = torch.stack([solution.isfinite().all() for solution in solutions])
    if not finite.all():
        raise torch.linalg.LinAlgError(
            "A ridge regression has no solution: sums over its rows are not finite, or, with its "
            "penalty, not positive definite. Look for infinite values among the cells, or raise "
            "ridge_inputs.penalties."
        )
