"""Trees to which rows are added.

The first rows grow the trees, which stay as they are. Later rows are added to the sums that the
regressions are solved from, so the state depends on the rows and their order, but not on where they
were cut into pieces.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from tabicl_linear.estimator.arrays import IntArray
from tabicl_linear.estimator.learners.chosen_trees.boosting import GrownTrees
from tabicl_linear.estimator.learners.chosen_trees.column_regression import ColumnRegression
from tabicl_linear.estimator.learners.chosen_trees.context import MOST_SAMPLED, TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import (
    HALVES,
    divisions,
    of_divisions,
)
from tabicl_linear.estimator.learners.chosen_trees.solving import LeafSums, SumRegression
from tabicl_linear.estimator.learners.chosen_trees.task_fit import (
    GrownDivision,
    TreePredictor,
    fitted_task,
    grow_on,
    leaf_sums,
    solve_divisions,
)
from tabicl_linear.types import Bool, Float, Int, Tensor


def sampled_rows(num_rows: int) -> IntArray:
    """Numbers of the sampled ones among the first `num_rows` rows, in order.

    They are one row of each stretch of 2^k rows, with the least k for which there are at most
    `MOST_SAMPLED` stretches. Which one is drawn by the number of the stretch: every 2^k-th row
    would be of the same three hours in a table with a row for each hour. A stretch takes the row of
    one of its halves, so a sample holds all rows of the sparser samples that come after it.
    """
    k = 0
    while num_rows > MOST_SAMPLED << k:
        k += 1
    rows = np.arange(-(-num_rows >> k), dtype=np.uint64)
    for level in range(k, 0, -1):
        # A mixture of bits (splitmix64), the first of which chooses the half.
        bits = rows + np.uint64(level << 48)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        rows = 2 * rows + (bits >> np.uint64(63))
    numbers = rows.astype(np.int64)
    return numbers[numbers < num_rows]  # the last stretch may not have come to its row


class TreeSums(NamedTuple):
    """The trees of one task, and sums over the rows that solve, for each division.

    Attributes:
        grown: The trees of each division.
        growing: Which of the first rows have grown the trees of each division.
        sums: Sums over all other rows, for each division.
        counts: Number of rows of each class.
    """

    grown: tuple[GrownTrees, ...]
    growing: Bool[Tensor, "d g"]
    sums: tuple[LeafSums, ...]
    counts: Float[Tensor, " y"]

    @classmethod
    def of_first(cls, rounds: list[TaskRows]) -> "TreeSums":
        """Grow trees and sum up the first rows, given once for each round with its features."""
        first = rounds[0]
        parts = divisions(first.labels, len(rounds), seed=first.regressions.options.seed)
        grown, sums = list[GrownTrees](), list[LeafSums]()
        for number, (rows, part) in enumerate(zip(of_divisions(rounds), parts, strict=True)):
            grown.append(grow_on(rows, part.growing, seeds=[number]))
            sums += leaf_sums(rows, part.solving, [grown[-1].trees], rows.num_smooth)
        every = np.arange(len(first))
        growing = torch.from_numpy(np.stack([np.isin(every, part.growing) for part in parts]))
        return cls(tuple(grown), growing.to(first.counts.device), tuple(sums), first.counts)

    def and_then(self, rounds: list[TaskRows]) -> "TreeSums":
        """The same after more rows, none of which has grown a tree."""
        every, sums = np.arange(len(rounds[0])), list[LeafSums]()
        # Both divisions of a round read the same features of the same rows.
        for number, rows in enumerate(rounds):
            of_round = slice(HALVES * number, HALVES * (number + 1))
            before, grown = self.sums[of_round], self.grown[of_round]
            more = leaf_sums(rows, every, [each.trees for each in grown], len(before[0].gram))
            sums += [one.plus(other) for one, other in zip(before, more, strict=True)]
        return self._replace(sums=tuple(sums), counts=self.counts + rounds[0].counts)

    def predictor(self, sample: list[TaskRows], numbers: IntArray) -> TreePredictor:
        """The predictor, chosen by the rows of the sample that each division leaves out.

        `sample` holds the rows with these numbers, once for each round.
        """
        targets = sample[0].one_hot(np.arange(len(sample[0])))
        divided = self._divisions(sample, numbers)
        solved = solve_divisions(divided, targets, len(self.grown), is_short=False)
        return fitted_task(solved, targets, self.counts).predictor

    def _divisions(self, sample: list[TaskRows], numbers: IntArray) -> Iterator[GrownDivision]:
        """The divisions; each leaves out the rows of the sample that have not grown its trees."""
        growing = self.growing[:, numbers[numbers < self.growing.shape[1]]]
        parts = zip(of_divisions(sample), self.grown, self.sums, growing, strict=True)
        for rows, grown, sums, is_growing in parts:
            is_left_out = F.pad(~is_growing, (0, len(rows) - len(is_growing)), value=True)
            places = is_left_out.nonzero().squeeze(1)
            left_out = rows.leaf_rows(places.cpu().numpy(), grown.trees)
            regression = SumRegression(sums, rows.kinds, left_out)
            columns = ColumnRegression.of_sums(sums, rows.num_columns, left_out)
            yield GrownDivision(grown, regression, columns, places)


class TreeGrowth(NamedTuple):
    """The trees and sums of all tasks, to which rows are added; bounded in size.

    Attributes:
        num_rows: Number of rows so far.
        sampled_x, sampled_y: The sample, by which penalties and logits are chosen: the rows of
            `sampled_rows`, and their labels.
        tasks: The trees and sums of each task.
    """

    num_rows: int
    sampled_x: Float[Tensor, "b s m"]
    sampled_y: Int[Tensor, "b s"]
    tasks: tuple[TreeSums, ...]

    @classmethod
    def of_first(
        cls, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], tasks: list[list[TaskRows]]
    ) -> "TreeGrowth":
        """Grow trees on the first rows.

        `tasks` holds the same rows, for each task and each round with its fixed features.
        """
        empty = cls(0, x[:, :0], y[:, :0], ())
        return empty._sampled(x, y)._replace(tasks=tuple(map(TreeSums.of_first, tasks)))

    def and_then(
        self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], tasks: list[list[TaskRows]]
    ) -> "TreeGrowth":
        """The same after more rows; see `of_first` for the arguments."""
        sums = tuple(map(TreeSums.and_then, self.tasks, tasks))
        return self._sampled(x, y)._replace(tasks=sums)

    def predictors(self, sample: list[list[TaskRows]]) -> tuple[TreePredictor, ...]:
        """The predictor of each task, chosen by the rows of the sample."""
        pairs = zip(self.tasks, sample, strict=True)
        numbers = sampled_rows(self.num_rows)
        return tuple(task.predictor(rounds, numbers) for task, rounds in pairs)

    def _sampled(self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"]) -> "TreeGrowth":
        """The same with a sample of all rows including these, which are not in the sums yet."""
        before, num_rows = sampled_rows(self.num_rows), self.num_rows + x.shape[1]
        after = sampled_rows(num_rows)
        kept, added = np.isin(before, after), after[after >= self.num_rows] - self.num_rows

        def sampled(earlier: Tensor, later: Tensor) -> Tensor:
            return torch.cat([earlier[:, kept], later[:, added]], dim=1)

        return self._replace(
            num_rows=num_rows,
            sampled_x=sampled(self.sampled_x, x),
            sampled_y=sampled(self.sampled_y, y),
        )
