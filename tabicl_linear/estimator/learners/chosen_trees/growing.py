"""Trees to which rows are added.

They are grown on the first rows and stay as they are. Whatever comes later is added to the sums
that the regressions are solved from, so that the state depends on the rows and their order, not on
where they were cut into pieces.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.estimator.learners.chosen_trees.boosting import Grown
from tabicl_linear.estimator.learners.chosen_trees.context import MOST_SAMPLED, TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import divisions
from tabicl_linear.estimator.learners.chosen_trees.solving import LeafSums, SumRegression
from tabicl_linear.estimator.learners.chosen_trees.task_fit import (
    GrownDivision,
    Predictor,
    cpu_kernels,
    fitted_task,
    grow_on,
    leaf_sums,
    solve_divisions,
)
from tabicl_linear.types import Bool, Float, Int, Tensor


class TaskSums(NamedTuple):
    """Trees of one task, and what is solved for them.

    Attributes:
        grown: Trees of each division.
        growing: Which of the first rows have grown them.
        sums: Over all other rows.
        counts: Rows of each class.
    """

    grown: tuple[Grown, ...]
    growing: Bool[Tensor, "d g"]
    sums: tuple[LeafSums, ...]
    counts: Float[Tensor, " y"]

    @classmethod
    def of_first(cls, rows: list[TaskRows]) -> "TaskSums":
        """Trees grown on the first rows, and the sums over them.

        Args:
            rows: The rows with the fixed features of each round.
        """
        parts = divisions(rows[0].labels, len(rows), seed=rows[0].regressions.options.seed)
        grown, sums = list[Grown](), list[LeafSums]()
        for number, part in enumerate(parts):
            with cpu_kernels():
                grown.append(grow_on(rows[number // 2], part.growing, seeds=[number]))
            sums.append(leaf_sums(rows[number // 2], part.solving, grown[-1].trees))
        counts = rows[0].one_hot(np.arange(len(rows[0]))).sum(0)
        growing = torch.zeros(len(parts), len(rows[0]), dtype=torch.bool, device=counts.device)
        for of_part, part in zip(growing, parts, strict=True):
            of_part[part.growing] = True
        return cls(tuple(grown), growing, tuple(sums), counts)

    def and_then(self, rows: list[TaskRows]) -> "TaskSums":
        """The same after more rows, which have grown no tree."""
        every = np.arange(len(rows[0]))
        sums = tuple(
            before.plus(leaf_sums(rows[number // 2], every, grown.trees))
            for number, (before, grown) in enumerate(zip(self.sums, self.grown, strict=True))
        )
        return self._replace(sums=sums, counts=self.counts + rows[0].one_hot(every).sum(0))

    def predictor(self, sample: list[TaskRows], stride: int) -> Predictor:
        """What predicts, chosen by the rows of the sample that each division leaves out.

        Args:
            sample: Every so many rows one, from the first on.
            stride: How many.
        """
        first = self.growing[:, ::stride]

        def divided() -> Iterator[GrownDivision]:
            for number, (grown, sums) in enumerate(zip(self.grown, self.sums, strict=True)):
                rows = sample[number // 2]
                asks = torch.ones(len(rows), dtype=torch.bool, device=first.device)
                asks[: first.shape[1]] = ~first[number]
                asked = asks.nonzero().squeeze(1)
                some = rows.leaf_rows(asked.cpu().numpy(), grown.trees)
                yield GrownDivision(grown, SumRegression(sums, rows.kinds, some), asked)

        targets = sample[0].one_hot(np.arange(len(sample[0])))
        with cpu_kernels():
            boosted, linear = solve_divisions(divided(), targets, len(self.grown), is_short=False)
            return fitted_task(linear, boosted, targets, self.counts)[0]


class Growth(NamedTuple):
    """What rows are added to; bounded in size.

    Attributes:
        num_rows: How many rows there were.
        x: The sample by which penalties and logits are chosen: every `stride` rows one.
        y: Its labels.
        tasks: Trees and sums of each task.
    """

    num_rows: int
    x: Float[Tensor, "b s m"]
    y: Int[Tensor, "b s"]
    tasks: tuple[TaskSums, ...]

    @property
    def stride(self) -> int:
        """One of so many rows is in the sample: a power of two, so that a sample holds the next."""
        stride = 1
        while self.num_rows > stride * MOST_SAMPLED:
            stride *= 2
        return stride

    def sampled(self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"]) -> "Growth":
        """The same with the sample of all rows up to these; the sums do not have them yet."""
        after = self._replace(num_rows=self.num_rows + x.shape[1])
        earlier = slice(None, None, after.stride // self.stride)
        later = slice(-self.num_rows % after.stride, None, after.stride)
        return after._replace(
            x=torch.cat([self.x[:, earlier], x[:, later]], dim=1),
            y=torch.cat([self.y[:, earlier], y[:, later]], dim=1),
        )
