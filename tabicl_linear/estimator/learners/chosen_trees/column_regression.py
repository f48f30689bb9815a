"""Regressions of labels on the columns alone, beside those on trees and fixed features.

Where a class depends a little on each of many columns, trees and random functions of all columns
add more noise than information, and a function that is linear in the columns predicts better.
"""

import torch

from tabicl_linear.estimator.learners.chosen_trees.solving import (
    LeafRows,
    LeafSums,
    Solution,
    Trial,
)
from tabicl_linear.ridge_inputs.feature_sets import Part
from tabicl_linear.ridge_inputs.solve import solve_moments
from tabicl_linear.ridge_inputs.solved import assert_solved
from tabicl_linear.ridge_inputs.sums import Moments, RidgeSums
from tabicl_linear.types import Float, Int, Tensor


class ColumnRegression:
    """A regression on the columns alone, which are the first of the fixed features.

    Args:
        moments: Moments of the columns, over all rows to solve on.
        x: Columns of the rows to leave out, one at a time.
        targets: Their one-hot labels, float64.
    """

    def __init__(
        self, moments: Moments, x: Float[Tensor, "s m"], targets: Float[Tensor, "s y"]
    ) -> None:
        self._moments, self._x, self._targets = moments, x, targets

    @classmethod
    def of_rows(
        cls, rows: LeafRows, num_columns: int, places: Int[Tensor, " s"]
    ) -> "ColumnRegression":
        """The regression on these rows, which leaves out those at `places`, one at a time."""
        x, targets = rows.fixed[:, :num_columns], rows.targets.double()
        moments = Moments.of([RidgeSums.of(x[None], targets[None])])
        return cls(moments, x[places], targets[places])

    @classmethod
    def of_sums(cls, sums: LeafSums, num_columns: int, left_out: LeafRows) -> "ColumnRegression":
        """The regression from sums over rows, which leaves out those in `left_out` one by one."""
        columns = slice(0, num_columns)
        gram, cross = sums.gram[columns, columns].clone(), sums.cross[columns].clone()
        totals = (sums.fixed[columns], gram, cross, sums.labels)
        moments = Moments.centred_(*(total[None] for total in totals))
        return cls(moments, left_out.fixed[:, columns], left_out.targets.double())

    def solve(self, penalty: float, deviation: float) -> Trial:
        """Solve it with a penalty in units of the variance of columns scaled to `deviation`.

        Raises:
            torch.linalg.LinAlgError: It has no solution.
        """
        columns = Part(slice(0, self._x.shape[1]), deviation)
        solved = solve_moments(self._moments, [columns], [penalty])
        left_out = solved.left_out(self._x[None], self._targets[None])[0, 0]
        weights, offset = (part[0, 0] for part in solved.regression.linear())
        assert_solved([weights])
        return Trial(left_out, lambda: Solution(torch.empty_like(weights[:0]), weights, offset))
