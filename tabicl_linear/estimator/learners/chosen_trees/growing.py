"""Trees to which rows are added.

They are grown on the first rows and stay as they are. Whatever comes later is added to the sums
that the regressions are solved from, so that the state depends on the rows and their order, not on
where they were cut into pieces.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from tabicl_linear.estimator.learners.chosen_trees.boosting import GrownTrees
from tabicl_linear.estimator.learners.chosen_trees.column_regression import ColumnRegression
from tabicl_linear.estimator.learners.chosen_trees.context import MOST_SAMPLED, TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import divisions, of_divisions
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


class TreeSums(NamedTuple):
    """Trees of one task, and sums over the rows that solve; of each division.

    Attributes:
        growing: Which of the first rows have grown the trees.
        sums: Over all other rows.
        counts: Rows of each class.
    """

    grown: tuple[GrownTrees, ...]
    growing: Bool[Tensor, "d g"]
    sums: tuple[LeafSums, ...]
    counts: Float[Tensor, " y"]

    @classmethod
    def of_first(cls, rounds: list[TaskRows]) -> "TreeSums":
        """Trees grown on the first rows, with the fixed features of each round, and their sums."""
        first = rounds[0]
        parts = divisions(first.labels, len(rounds), seed=first.regressions.options.seed)
        grown, sums = list[GrownTrees](), list[LeafSums]()
        for number, (rows, part) in enumerate(zip(of_divisions(rounds), parts, strict=True)):
            grown.append(grow_on(rows, part.growing, seeds=[number]))
            sums.append(leaf_sums(rows, part.solving, grown[-1].trees, rows.num_smooth))
        every = np.arange(len(first))
        growing = torch.from_numpy(np.stack([np.isin(every, part.growing) for part in parts]))
        return cls(tuple(grown), growing.to(first.counts.device), tuple(sums), first.counts)

    def and_then(self, rounds: list[TaskRows]) -> "TreeSums":
        """The same after more rows, which have grown no tree."""
        every = np.arange(len(rounds[0]))
        parts = zip(of_divisions(rounds), self.sums, self.grown, strict=True)
        sums = tuple(
            before.plus(leaf_sums(rows, every, grown.trees, len(before.gram)))
            for rows, before, grown in parts
        )
        return self._replace(sums=sums, counts=self.counts + rounds[0].counts)

    def predictor(self, sample: list[TaskRows], stride: int) -> TreePredictor:
        """What predicts, chosen by the rows of the sample that each division leaves out.

        The sample is one of every `stride` rows, from the first on, in each round.
        """
        targets = sample[0].one_hot(np.arange(len(sample[0])))
        divided = self._divisions(sample, stride)
        solved = solve_divisions(divided, targets, len(self.grown), is_short=False)
        return fitted_task(solved, targets, self.counts).predictor

    def _divisions(self, sample: list[TaskRows], stride: int) -> Iterator[GrownDivision]:
        """The divisions, which leave out the rows of the sample that have not grown their trees."""
        growing = self.growing[:, ::stride]
        parts = zip(of_divisions(sample), self.grown, self.sums, growing, strict=True)
        for rows, grown, sums, is_growing in parts:
            is_left_out = F.pad(~is_growing, (0, len(rows) - len(is_growing)), value=True)
            places = is_left_out.nonzero().squeeze(1)
            left_out = rows.leaf_rows(places.cpu().numpy(), grown.trees)
            regression = SumRegression(sums, rows.kinds, left_out)
            columns = ColumnRegression.of_sums(sums, rows.num_columns, left_out)
            yield GrownDivision(grown, regression, columns, places)


class TreeGrowth(NamedTuple):
    """Trees and sums, to which rows are added; bounded in size.

    Attributes:
        num_rows: All rows so far.
        x, y: The sample, by which penalties and logits are chosen: every `stride`-th row, from the
            first on, and its label.
        tasks: The trees and sums of each task.
    """

    num_rows: int
    x: Float[Tensor, "b s m"]
    y: Int[Tensor, "b s"]
    tasks: tuple[TreeSums, ...]

    @classmethod
    def of_first(
        cls, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], tasks: list[list[TaskRows]]
    ) -> "TreeGrowth":
        """Trees grown on the first rows.

        `tasks` are the same rows once more, of each task with the fixed features of each round.
        """
        empty = cls(0, x[:, :0], y[:, :0], ())
        return empty._sampled(x, y)._replace(tasks=tuple(map(TreeSums.of_first, tasks)))

    def and_then(
        self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], tasks: list[list[TaskRows]]
    ) -> "TreeGrowth":
        """The same after more rows; arguments as of `of_first`."""
        sums = tuple(map(TreeSums.and_then, self.tasks, tasks))
        return self._sampled(x, y)._replace(tasks=sums)

    def predictors(self, sample: list[list[TaskRows]]) -> tuple[TreePredictor, ...]:
        """What predicts rows of each task, chosen by the rows of the sample."""
        pairs = zip(self.tasks, sample, strict=True)
        return tuple(task.predictor(rounds, self.stride) for task, rounds in pairs)

    @property
    def stride(self) -> int:
        """The least power of two with which the sample has at most `MOST_SAMPLED` rows.

        As they are powers of two, a sample holds all rows of the sparser ones after it.
        """
        stride = 1
        while self.num_rows > stride * MOST_SAMPLED:
            stride *= 2
        return stride

    def _sampled(self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"]) -> "TreeGrowth":
        """The same with the sample of all rows up to these; the sums do not have them yet."""
        after = self._replace(num_rows=self.num_rows + x.shape[1])
        thinning = after.stride // self.stride
        # Place of the first of these rows whose number the stride divides.
        start = -self.num_rows % after.stride

        def sampled(earlier: Tensor, later: Tensor) -> Tensor:
            return torch.cat([earlier[:, ::thinning], later[:, start :: after.stride]], dim=1)

        return after._replace(x=sampled(self.x, x), y=sampled(self.y, y))
