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
from tabicl_linear.estimator.learners.chosen_trees.divisions import divisions, of_divisions
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
    def of_first(cls, rounds: list[TaskRows]) -> "TaskSums":
        """Trees grown on the first rows, and the sums over them.

        Args:
            rounds: The rows with the fixed features of each round.
        """
        first = rounds[0]
        parts = divisions(first.labels, len(rounds), seed=first.regressions.options.seed)
        grown, sums = list[Grown](), list[LeafSums]()
        for number, (rows, part) in enumerate(zip(of_divisions(rounds), parts, strict=True)):
            with cpu_kernels():
                grown.append(grow_on(rows, part.growing, seeds=[number]))
            sums.append(leaf_sums(rows, part.solving, grown[-1].trees))
        every = np.arange(len(first))
        growing = torch.from_numpy(np.stack([np.isin(every, part.growing) for part in parts]))
        return cls(tuple(grown), growing.to(first.counts.device), tuple(sums), first.counts)

    def and_then(self, rounds: list[TaskRows]) -> "TaskSums":
        """The same after more rows, which have grown no tree."""
        every = np.arange(len(rounds[0]))
        sums = tuple(
            before.plus(leaf_sums(rows, every, grown.trees))
            for rows, before, grown in zip(of_divisions(rounds), self.sums, self.grown, strict=True)
        )
        return self._replace(sums=sums, counts=self.counts + rounds[0].counts)

    def predictor(self, sample: list[TaskRows], stride: int) -> Predictor:
        """What predicts, chosen by the rows of the sample that each division leaves out.

        Args:
            sample: One of every `stride` rows, from the first on, as rows of each round.
            stride: How far they are apart.
        """

        def each_division() -> Iterator[GrownDivision]:
            growing = self.growing[:, ::stride]
            parts = zip(of_divisions(sample), self.grown, self.sums, growing, strict=True)
            for rows, grown, sums, is_growing in parts:
                is_left_out = torch.ones(len(rows), dtype=torch.bool, device=is_growing.device)
                is_left_out[: len(is_growing)] = ~is_growing
                places = is_left_out.nonzero().squeeze(1)
                left_out = rows.leaf_rows(places.cpu().numpy(), grown.trees)
                yield GrownDivision(grown, SumRegression(sums, rows.kinds, left_out), places)

        targets = sample[0].one_hot(np.arange(len(sample[0])))
        with cpu_kernels():
            boosted, linear = solve_divisions(
                each_division(), targets, len(self.grown), is_short=False
            )
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

    @classmethod
    def of_first(
        cls, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], tasks: list[list[TaskRows]]
    ) -> "Growth":
        """Trees grown on the first rows, and what is known of these.

        Args:
            x: The rows.
            y: Their labels.
            tasks: The rows of each task, with the fixed features of each round.
        """
        empty = cls(0, x[:, :0], y[:, :0], ())
        return empty._sampled(x, y)._replace(tasks=tuple(map(TaskSums.of_first, tasks)))

    def and_then(
        self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], tasks: list[list[TaskRows]]
    ) -> "Growth":
        """The same after more rows; arguments as of `of_first`."""
        sums = tuple(map(TaskSums.and_then, self.tasks, tasks))
        return self._sampled(x, y)._replace(tasks=sums)

    def predictors(self, sample: list[list[TaskRows]]) -> tuple[Predictor, ...]:
        """What predicts rows of each task, chosen by the rows of the sample."""
        pairs = zip(self.tasks, sample, strict=True)
        return tuple(task.predictor(rounds, self.stride) for task, rounds in pairs)

    @property
    def stride(self) -> int:
        """One of so many rows is in the sample: a power of two, so that a sample holds the next."""
        stride = 1
        while self.num_rows > stride * MOST_SAMPLED:
            stride *= 2
        return stride

    def _sampled(self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"]) -> "Growth":
        """The same with the sample of all rows up to these; the sums do not have them yet."""
        after = self._replace(num_rows=self.num_rows + x.shape[1])
        earlier = slice(None, None, after.stride // self.stride)
        # The first of these rows whose number, counted from the very first, the stride divides.
        later = slice(-self.num_rows % after.stride, None, after.stride)
        return after._replace(
            x=torch.cat([self.x[:, earlier], x[:, later]], dim=1),
            y=torch.cat([self.y[:, earlier], y[:, later]], dim=1),
        )
