"""A learner in closed form whose trees are chosen on the table, and which tables have one.

They are grown on one half of the rows and solved on the other, so that rows left out are honest.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from tabicl_linear.backends.choice import tokenwise
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics, standardise
from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.estimator.learners.chosen_trees.context import TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import (
    FEWEST_ROWS,
    MOST_ROUNDS,
    rows_that_grow,
    scheme,
)
from tabicl_linear.estimator.learners.chosen_trees.growing import TreeGrowth
from tabicl_linear.estimator.learners.chosen_trees.task_fit import TreePredictor, fit_rows
from tabicl_linear.estimator.learners.closed_form import check_budget
from tabicl_linear.estimator.learners.interface import (
    Companion,
    ContextLearner,
    Learners,
    OwnPreset,
    Preset,
    SolvedLater,
)
from tabicl_linear.kernels.chosen import using
from tabicl_linear.kernels.state import row_major
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions
from tabicl_linear.types import Bool, Float, Int, Tensor

MAX_COLUMNS = 100
"""Columns of a member, unless another number is given."""
OPTIONS = RidgeOptions(calibration="logistic")
ROWS_AT_ONCE = 1024
"""Rows that are predicted together: their features fit into a cache."""
WEIGHTS_BESIDE = ((200, 0.4), (400, 0.2))
"""Most rows of a table, and weight of a network's logits beside trees (docs/training_log.md)."""


class ChosenTreesState(NamedTuple):
    """What is known after a context; bounded in size.

    Attributes:
        thresholds: Standardised values that fixed trees compare with, for each round.
        statistics: Column statistics, by which rows are standardised.
        predictors: One for each task; none of what has not been `solved` as yet.
        growth: What rows are added to; None where there are too few rows as yet, or will be no
            others.
        rows: While they are so few, the rows and their labels; None once they are solved.
    """

    thresholds: tuple[Float[Tensor, "b r"], ...]
    statistics: ContextStatistics
    predictors: tuple[TreePredictor, ...]
    growth: TreeGrowth | None = None
    rows: tuple[Float[Tensor, "b n m"], Int[Tensor, "b n"]] | None = None


class ChosenTrees(nn.Module, OwnPreset, SolvedLater):
    """Predicts rows by ridge regressions on trees that are grown on other rows of the context.

    The context is divided into halves several times. Trees are grown by boosting on one half, and
    the regressions with their leaves beside fixed features solved on the other, and the other way
    round; rows are predicted by the mean of all solutions. A context row is left out of a solution
    exactly where other rows have grown its trees: what is chosen by such rows is chosen honestly.
    Has no parameters.

    Args:
        options: Fixed features and penalties.
        grows: Whether rows will be added. The first `rows_that_grow()` rows grow the trees, and
            later ones are added to sums. States are not `solved`, which takes seconds, by `fit`.
    """

    def __init__(
        self,
        options: RidgeOptions,
        *,
        max_columns: int,
        num_classes: int,
        grows: bool = False,
    ) -> None:
        super().__init__()
        self.options, self.max_columns, self.num_classes = options, max_columns, num_classes
        self.grows = grows
        # Logits are made of the shares of all features together, so none of these alone.
        shares = replace(options, calibration="confidence")
        seeds = ((options.seed + number) % 2**32 for number in range(MOST_ROUNDS))
        draws = (replace(shares, seed=seed) for seed in seeds)
        self.regressions = nn.ModuleList(
            RidgeRegressions(draw, num_features=max_columns, num_classes=num_classes)
            for draw in draws
        )

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return self.draws(1)[0].device

    @property
    def is_causal(self) -> bool:
        """Whether rows can be added to its states."""
        return self.grows

    def preset(self, num_rows: int, num_columns: int) -> Preset:
        """Few members, which see all columns together, and logits as they are.

        Each divides the rows several times by itself, and its logits are calibrated.
        """
        members = max(scheme(num_rows).members, -(-num_columns // self.max_columns))
        return Preset(members, softmax_temperature=1.0)

    def check_extensible(self) -> None:
        """Raise `UnsupportedReadout` if no rows can be added to its states."""
        if not self.grows:
            raise UnsupportedReadout(
                "Trees that `fit` has chosen keep their coefficients alone: begin with "
                "`partial_fit` on a new classifier to add rows later."
            )

    def draws(self, count: int) -> list[RidgeRegressions]:
        """What makes the fixed features of the first rounds, each drawn with another seed."""
        return [each for each in self.regressions[:count] if isinstance(each, RidgeRegressions)]

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
        rows_per_chunk: int,
        spill: Path | None = None,
        state: ChosenTreesState | None = None,
    ) -> ChosenTreesState:
        """Grow trees on labelled rows, and solve the regressions; see `ContextLearner.fit`.

        Nothing is spilled: memory does not grow with the rows.
        """
        if state is not None:
            return self._with_more(state, x, y, rows_per_chunk)
        goes_on = self.grows and x.shape[1] >= rows_that_grow()
        num_first = rows_that_grow() if goes_on else x.shape[1]
        first, labels = x[:, :num_first], y[:, :num_first]
        statistics = context_statistics(
            first, labels, categorical, num_features=None, rows_per_chunk=rows_per_chunk
        )
        draws = self.draws(max(scheme(num_first).rounds, 1))
        thresholds = tuple(draw.thresholds(first, statistics, rows_per_chunk) for draw in draws)
        start = ChosenTreesState(thresholds, statistics, predictors=())
        if self.grows and not goes_on:
            return start._replace(rows=(first, labels))
        with _cpu_kernels():
            tasks = self._tasks(start, first, labels, rows_per_chunk)
            if not self.grows:
                return row_major(start._replace(predictors=_predictors(tasks)))
            start = start._replace(growth=TreeGrowth.of_first(first, labels, tasks))
        return self._with_more(start, x[:, num_first:], y[:, num_first:], rows_per_chunk)

    def predict(self, state: ChosenTreesState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
        state = self.solved(state)
        with _cpu_kernels():
            parts = x.split(ROWS_AT_ONCE, dim=1)
            return torch.cat([self._predicted(state, part) for part in parts], dim=1)

    def _predicted(self, state: ChosenTreesState, x: Tensor) -> Float[Tensor, "b q y"]:
        """Logits of some rows."""
        draws = self.draws(len(state.thresholds))
        weights = torch.stack([predictor.fixed for predictor in state.predictors])
        rounds = zip(draws, weights.chunk(len(draws), dim=1), state.thresholds, strict=True)
        sums = [
            draw.weighted(x, round_weights, thresholds, state.statistics)
            for draw, round_weights, thresholds in rounds
        ]
        z = standardise(x, state.statistics).float()
        tasks = zip(state.predictors, z, torch.stack(sums).sum(0), strict=True)
        return torch.stack([predictor.logits(rows, fixed) for predictor, rows, fixed in tasks])

    def _with_more(
        self,
        state: ChosenTreesState,
        x: Float[Tensor, "b n m"],
        y: Int[Tensor, "b n"],
        rows_per_chunk: int,
    ) -> ChosenTreesState:
        """The state after more rows than trees are grown on."""
        growth = state.growth
        assert growth is not None, "rows for trees to which none can be added"
        if x.shape[1]:
            with _cpu_kernels():
                growth = growth.and_then(x, y, self._tasks(state, x, y, rows_per_chunk))
        return row_major(state._replace(predictors=(), growth=growth))

    def solved(self, state: ChosenTreesState) -> ChosenTreesState:
        """The state with the regressions solved from its rows or sums, which takes seconds."""
        if state.predictors:
            return state
        growth = state.growth
        rows = state.rows if growth is None else (growth.x, growth.y)
        assert rows is not None, "nothing to solve"
        with _cpu_kernels():
            tasks = self._tasks(state, *rows, rows_per_chunk=rows[0].shape[1])
            predictors = _predictors(tasks) if growth is None else growth.predictors(tasks)
        return row_major(state._replace(predictors=predictors, rows=None))

    def _tasks(
        self,
        state: ChosenTreesState,
        x: Float[Tensor, "b n m"],
        y: Int[Tensor, "b n"],
        rows_per_chunk: int,
    ) -> list[list[TaskRows]]:
        """Rows of each task, with the fixed features of each round."""
        tasks, draws = [], self.draws(len(state.thresholds))
        for task in range(len(x)):
            one = slice(task, task + 1)
            statistics = ContextStatistics(*(part[one] for part in state.statistics))
            tasks.append(
                [
                    TaskRows(draw, x[one], y[one], thresholds[one], statistics, rows_per_chunk)
                    for draw, thresholds in zip(draws, state.thresholds, strict=True)
                ]
            )
        return tasks


def _predictors(tasks: list[list[TaskRows]]) -> tuple[TreePredictor, ...]:
    """What predicts rows of each task, given as the same rows with the features of each round."""
    return tuple(fit_rows(rounds).predictor for rounds in tasks)


def _cpu_kernels() -> AbstractContextManager[None]:
    """Let C++ grow trees and multiply rows, where it is built: trees grow on the CPU."""
    return using(tokenwise(device=torch.device("cpu"), backend="auto"))


@dataclass(frozen=True)
class ChosenTreesLearners(Learners):
    """Learners with trees.

    Args:
        options: Fixed features and penalties.
        max_columns: Columns that a member sees at most.
        others: Makes the learners that read tables of fewer than `FEWEST_ROWS` rows in place of
            trees, and those of up to 400 rows beside them. None: trees read all tables alone.
    """

    options: RidgeOptions = OPTIONS
    max_columns: int = MAX_COLUMNS
    others: Callable[[], Learners] | None = None

    grow_trees = True

    def for_table(self, num_classes: int, num_rows: int, *, grows: bool = False) -> ContextLearner:
        """Trees, or for few rows to which none will be added one of the other learners."""
        if self.others is not None and num_rows < FEWEST_ROWS and not grows:
            return self.others().for_table(num_classes, num_rows)
        check_budget(self.options, num_columns=self.max_columns, num_rows=num_rows)
        return ChosenTrees(
            self.options,
            max_columns=self.max_columns,
            num_classes=num_classes,
            grows=grows,
        )

    def finished(
        self, learner: ChosenTrees, states: tuple[ChosenTreesState, ...]
    ) -> tuple[ChosenTrees, tuple[ChosenTreesState, ...]]:
        """Trees and their weights alone, without the sums that these are solved from."""
        model = ChosenTrees(
            learner.options, max_columns=learner.max_columns, num_classes=learner.num_classes
        ).to(learner.device)
        return model, tuple(model.solved(state)._replace(growth=None) for state in states)

    def companion(self, num_classes: int, num_rows: int) -> Companion | None:
        """Up to 400 rows, the learner without trees, and the weight of its logits."""
        weight = next((weight for most, weight in WEIGHTS_BESIDE if num_rows <= most), 0.0)
        if self.others is None or num_rows < FEWEST_ROWS or not weight:
            return None
        return Companion(self.others().for_table(num_classes, num_rows), weight)
