"""Whether regressions could be solved, asked once at the end.

Where a matrix has no Cholesky factor there is NaN (`kernels/cholesky.py`).
"""

from collections.abc import Iterable

import torch

from tabicl_linear.types import Tensor


def assert_solved(solutions: Iterable[Tensor]) -> None:
    """Look at what was solved: the host waits for the device once.

    Raises:
        torch.linalg.LinAlgError: Not all are finite.
    """
    finite = torch.stack([solution.isfinite().all() for solution in solutions])
    if not finite.all():
        raise torch.linalg.LinAlgError(
            "A ridge regression has no solution: sums over its rows are not finite, or, with its "
            "penalty, not positive definite. Look for infinite values among the cells, or raise "
            "ridge_inputs.penalties."
        )
