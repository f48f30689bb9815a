"""A learner with trees chosen on the table to whose state rows can be added.

The first rows are held and fitted anew with every piece. Once there are enough to grow trees on,
the trees stay as they are, the rows are let go, and whatever comes later is added to the sums that
the regressions are solved from. So the state depends on the rows and their order, not on where they
were cut into pieces.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tabicl_linear.backends.choice import tokenwise
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics
from tabicl_linear.estimator.learners.chosen_trees.context import MOST_SAMPLED, TaskRows
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import (
    ChosenTrees,
    ChosenTreesState,
)
from tabicl_linear.estimator.learners.chosen_trees.divisions import (
    ROUNDS,
    divisions,
    rows_that_grow,
)
from tabicl_linear.estimator.learners.chosen_trees.growth import Grown
from tabicl_linear.estimator.learners.chosen_trees.predictor import (
    Divided,
    Predictor,
    finished,
    grow_on,
    solved,
)
from tabicl_linear.estimator.learners.chosen_trees.solving import OfSums
from tabicl_linear.estimator.learners.chosen_trees.sums import LeafSums, Rows
from tabicl_linear.kernels.chosen import using
from tabicl_linear.kernels.state import row_major
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.types import Bool, Float, Int, Tensor


class HeldRows(NamedTuple):
    """The first rows, until there are enough to grow trees for good.

    Attributes:
        x: The rows.
        y: Their labels.
    """

    x: Float[Tensor, "b n m"]
    y: Int[Tensor, "b n"]

    def and_then(self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"]) -> "HeldRows":
        """These rows and others."""
        return HeldRows(torch.cat([self.x, x], dim=1), torch.cat([self.y, y], dim=1))

    def some(self, rows: slice) -> "HeldRows":
        """Some of the rows."""
        return HeldRows(self.x[:, rows], self.y[:, rows])


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


class GrowingTreesState(NamedTuple):
    """What is known after some rows; bounded in size.

    Attributes:
        num_rows: How many rows.
        categorical: Which columns hold category codes.
        held: All rows so far, or from then on that trees stay as they are the sample by which
            penalties and logits are chosen: every so many rows one, evenly over all.
        tasks: Trees and sums of each task; none while all rows are held.
        solved: What predicts.
    """

    num_rows: int
    categorical: Bool[Tensor, "b m"]
    held: HeldRows
    tasks: tuple[TaskSums, ...]
    solved: ChosenTreesState


class GrowingTrees(nn.Module):
    """Predicts as `ChosenTrees`, and takes more rows at any time.

    Args:
        options: Fixed features and penalties.
        max_columns: Maximum number of columns of a table.
        num_classes: Number of classes of a table.
    """

    def __init__(self, options: RidgeOptions, *, max_columns: int, num_classes: int) -> None:
        super().__init__()
        self.trees = ChosenTrees(options, max_columns=max_columns, num_classes=num_classes)

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return self.trees.device

    @property
    def max_columns(self) -> int:
        """Maximum number of columns of a table."""
        return self.trees.max_columns

    def arguments(self) -> dict[str, Any]:
        """The arguments that make an equal learner."""
        return self.trees.arguments()

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
        rows_per_chunk: int,
        state: GrowingTreesState | None = None,
        spill: Path | None = None,
    ) -> GrowingTreesState:
        """The state after these rows, and before them those of another state.

        Args:
            x: Features; NaN and infinities count as missing.
            y: Class indices from 0.
            categorical: Which columns hold category codes; needed without a state.
            rows_per_chunk: Rows processed together. The result is the same up to rounding.
            state: After earlier rows.
            spill: Unused: memory does not grow with the rows.
        """
        first = HeldRows(x[:, :0], y[:, :0])
        if state is not None:
            categorical, first = state.categorical, state.held
            if state.tasks:
                return self._added(state, x, y, rows_per_chunk)
        assert categorical is not None, "rows without a state, and kinds of columns not given"
        room = rows_that_grow() - first.x.shape[1]
        first = first.and_then(x[:, :room], y[:, :room])
        if x.shape[1] < room:
            fitted = self.trees.fit(
                first.x, first.y, categorical=categorical, rows_per_chunk=rows_per_chunk
            )
            return row_major(GrowingTreesState(first.x.shape[1], categorical, first, (), fitted))
        grown = self._grown(first, categorical, rows_per_chunk)
        return self._added(grown, x[:, room:], y[:, room:], rows_per_chunk)

    def predict(
        self, state: GrowingTreesState, x: Float[Tensor, "b q m"]
    ) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
        return self.trees.predict(state.solved, x)

    def _grown(
        self, first: HeldRows, categorical: Bool[Tensor, "b m"], rows_per_chunk: int
    ) -> GrowingTreesState:
        """Trees that stay as they are, and sums over the first rows; nothing is solved yet."""
        statistics = context_statistics(
            first.x, first.y, categorical, num_features=None, rows_per_chunk=rows_per_chunk
        )
        draws = self.trees.draws(ROUNDS)
        thresholds = tuple(each.thresholds(first.x, statistics, rows_per_chunk) for each in draws)
        state = ChosenTreesState(thresholds, statistics, ())
        tasks = []
        for task in range(len(first.x)):
            rows = self._rows(state, task, first, rows_per_chunk)
            parts = divisions(rows[0].labels, ROUNDS, seed=rows[0].regressions.options.seed)
            growing = torch.zeros(len(parts), len(rows[0]), dtype=torch.bool, device=self.device)
            grown, sums = list[Grown](), list[LeafSums]()
            for number, part in enumerate(parts):
                growing[number, part.growing] = True
                with using(tokenwise(device=torch.device("cpu"), backend="auto")):
                    grown.append(grow_on(rows[number // 2], part.growing, seed=number))
                sums.append(_sums(rows[number // 2], grown[-1], part.solving))
            counts = rows[0].one_hot(np.arange(len(rows[0]))).sum(0)
            tasks.append(TaskSums(tuple(grown), growing, tuple(sums), counts))
        num_rows = first.x.shape[1]
        held = first.some(slice(None, None, _stride(num_rows)))
        return GrowingTreesState(num_rows, categorical, held, tuple(tasks), state)

    def _added(
        self,
        state: GrowingTreesState,
        x: Float[Tensor, "b n m"],
        y: Int[Tensor, "b n"],
        rows_per_chunk: int,
    ) -> GrowingTreesState:
        """The state after more rows than trees are grown on, solved."""
        num_rows = state.num_rows + x.shape[1]
        before, after = _stride(state.num_rows), _stride(num_rows)
        held = state.held.some(slice(None, None, after // before))
        later = slice(-state.num_rows % after, None, after)
        held = held.and_then(x[:, later], y[:, later])
        tasks = state.tasks
        if x.shape[1]:
            more = HeldRows(x, y)
            tasks = tuple(
                _with_more(each, self._rows(state.solved, task, more, rows_per_chunk))
                for task, each in enumerate(tasks)
            )
        with using(tokenwise(device=torch.device("cpu"), backend="auto")):
            predictors = tuple(
                _predictor(each, self._rows(state.solved, task, held, rows_per_chunk), after)
                for task, each in enumerate(tasks)
            )
        fitted = state.solved._replace(predictors=predictors)
        return row_major(GrowingTreesState(num_rows, state.categorical, held, tasks, fitted))

    def _rows(
        self, state: ChosenTreesState, task: int, rows: HeldRows, rows_per_chunk: int
    ) -> list[TaskRows]:
        """Rows of one task, with the fixed features of each round."""
        one = slice(task, task + 1)
        statistics = ContextStatistics(*(part[one] for part in state.statistics))
        draws = self.trees.draws(len(state.thresholds))
        return [
            TaskRows(draw, rows.x[one], rows.y[one], limits[one], statistics, rows_per_chunk)
            for draw, limits in zip(draws, state.thresholds, strict=True)
        ]


def _stride(num_rows: int) -> int:
    """One of so many rows is in the sample: a power of two, so that a sample holds the next."""
    stride = 1
    while num_rows > stride * MOST_SAMPLED:
        stride *= 2
    return stride


def _sums(rows: TaskRows, grown: Grown, some: np.ndarray) -> LeafSums:
    chunks = (rows.taken(chunk, grown.trees) for chunk in rows.chunks(some))
    return LeafSums.over(chunks, grown.trees.num_leaves)


def _with_more(task: TaskSums, rows: list[TaskRows]) -> TaskSums:
    """The sums after more rows, which have grown no tree."""
    every = np.arange(len(rows[0]))
    sums = tuple(
        before.plus(_sums(rows[number // 2], grown, every))
        for number, (before, grown) in enumerate(zip(task.sums, task.grown, strict=True))
    )
    return task._replace(sums=sums, counts=task.counts + rows[0].one_hot(every).sum(0))


def _predictor(task: TaskSums, sample: list[TaskRows], stride: int) -> Predictor:
    """What predicts, chosen by the rows of the sample that each division leaves out.

    Args:
        task: Sums to solve.
        sample: Every so many rows one, from the first on.
        stride: How many.
    """
    first = task.growing[:, ::stride]

    def divided() -> Iterator[Divided]:
        for number, (grown, sums) in enumerate(zip(task.grown, task.sums, strict=True)):
            rows = sample[number // 2]
            asks = torch.ones(len(rows), dtype=torch.bool, device=first.device)
            asks[: first.shape[1]] = ~first[number]
            asked = asks.nonzero().squeeze(1)
            some: Rows = rows.taken(asked.cpu().numpy(), grown.trees)
            yield Divided(grown, OfSums(sums, rows.kinds, some), asked, some.leaves)

    r = sample[0].one_hot(np.arange(len(sample[0])))
    boosted, linear = solved(divided(), r, len(task.grown), is_short=False)
    return finished(linear, boosted, r, task.counts).predictor
