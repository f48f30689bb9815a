"""The learner whose trees are chosen on the table, and the decision which tables get one.

Trees are grown on one half of the rows, and the weights of their leaves are solved in closed form
on the other half, so that left-out rows judge them honestly.
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
from tabicl_linear.estimator.arrays import IntArray
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
"""Maximum number of columns of a member, unless another is given."""
OPTIONS = RidgeOptions(calibration="logistic")
ROWS_AT_ONCE = 1024
"""Rows that are predicted together: their features fit into the CPU's cache."""
WEIGHTS_BESIDE = ((200, 0.4), (400, 0.2))
"""Pairs: up to this many `balanced_rows`, a network's logits have this weight beside those of trees
(docs/training_log.md)."""
MOST_ROWS_BESIDE = 1000
"""Number of rows up to which a network is read beside trees, however rare the other classes are: it
was pretrained on at most about as many, and its time grows with them."""


class ChosenTreesState(NamedTuple):
    """The state after a context; bounded in size.

    Attributes:
        thresholds: Standardised values that the nodes of fixed trees compare with, for each round.
        statistics: Column statistics, by which rows are standardised.
        predictors: One for each task; empty while the state is not `solved`.
        growth: The trees and sums that rows are added to; None while there are too few rows for
            them, or if no rows will be added.
        rows: The rows and their labels, while there are too few; None once they are solved.
    """

    thresholds: tuple[Float[Tensor, "b r"], ...]
    statistics: ContextStatistics
    predictors: tuple[TreePredictor, ...]
    growth: TreeGrowth | None = None
    rows: tuple[Float[Tensor, "b n m"], Int[Tensor, "b n"]] | None = None


class ChosenTrees(nn.Module, OwnPreset, SolvedLater):
    """Predicts rows by ridge regressions on trees that are grown on other rows of the context.

    The context is divided into halves several times. Trees are grown by boosting on one half, and
    regressions on their leaves and on fixed features are solved on the other half, and vice versa.
    The mean of all solutions predicts rows. A solution predicts a context row, leaving it out, only
    if other rows have grown the trees; so choices that are made by these predictions are honest.
    Has no parameters.

    Args:
        options: Fixed features and penalties.
        grows: Whether rows will be added. If so, the rows of the first call of `fit` grow the trees
            if there are at least `rows_that_grow()` of them. Later rows are added to sums. `fit`
            leaves solving, which takes seconds, to `solved`.
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
        # Logits are made of the shares of all features together, not of these features alone.
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
        """Few members, just enough to see all columns, and a temperature of 1.

        Each member divides the rows several times itself, and its logits are calibrated already.
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
        """What makes the fixed features of the first `count` rounds, each from its own seed."""
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

        `spill` is not needed: memory does not grow with the number of rows.
        """
        if state is not None:
            return self._with_more(state, x, y, rows_per_chunk)
        num_rows = x.shape[1]
        statistics = context_statistics(
            x, y, categorical, num_features=None, rows_per_chunk=rows_per_chunk
        )
        draws = self.draws(max(scheme(num_rows).rounds, 1))
        thresholds = tuple(draw.thresholds(x, statistics, rows_per_chunk) for draw in draws)
        start = ChosenTreesState(thresholds, statistics, predictors=())
        if self.grows and num_rows < rows_that_grow():
            return start._replace(rows=(x, y))
        with _cpu_kernels():
            tasks = self._tasks(start, x, y, rows_per_chunk)
            if self.grows:
                return row_major(start._replace(growth=TreeGrowth.of_first(x, y, tasks)))
            return row_major(start._replace(predictors=_predictors(tasks)))

    def predict(self, state: ChosenTreesState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
        state = self.solved(state)
        with _cpu_kernels():
            parts = x.split(ROWS_AT_ONCE, dim=1)
            return torch.cat([self._predicted(state, part) for part in parts], dim=1)

    def _predicted(self, state: ChosenTreesState, x: Tensor) -> Float[Tensor, "b q y"]:
        """Logits of at most `ROWS_AT_ONCE` rows."""
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
        """The state after adding rows to its sums; its trees stay as they are."""
        growth = state.growth
        assert growth is not None, "rows for trees to which none can be added"
        if x.shape[1]:
            with _cpu_kernels():
                growth = growth.and_then(x, y, self._tasks(state, x, y, rows_per_chunk))
        return row_major(state._replace(predictors=(), growth=growth))

    def solved(self, state: ChosenTreesState) -> ChosenTreesState:
        """The state with regressions solved from its rows or sums, which takes seconds."""
        if state.predictors:
            return state
        growth = state.growth
        rows = state.rows if growth is None else (growth.sampled_x, growth.sampled_y)
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
        """The rows of each task, once for each round, with the fixed features of the round."""
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
    """The predictor of each task, whose rows are given once for each round."""
    return tuple(fit_rows(rounds).predictor for rounds in tasks)


def _cpu_kernels() -> AbstractContextManager[None]:
    """Let C++ grow trees and multiply rows, if it is built; trees always grow on the CPU."""
    return using(tokenwise(device=torch.device("cpu"), backend="auto"))


@dataclass(frozen=True)
class ChosenTreesLearners(Learners):
    """Learners whose trees are chosen on the table.

    Args:
        options: Fixed features and penalties.
        max_columns: Maximum number of columns that a member sees.
        others: Makes the learners that read tables of fewer than `FEWEST_ROWS` rows instead of
            trees, and tables of few `balanced_rows` beside trees. None: trees read all tables
            alone.
    """

    options: RidgeOptions = OPTIONS
    max_columns: int = MAX_COLUMNS
    others: Callable[[], Learners] | None = None

    grow_trees = True

    def for_table(self, num_classes: int, num_rows: int, *, grows: bool = False) -> ContextLearner:
        """Trees; for few rows, to which none will be added, one of the other learners instead."""
        if self.others is not None and num_rows < FEWEST_ROWS and not grows:
            return self.others().for_table(num_classes, num_rows)
        check_budget(self.options, num_columns=self.max_columns, num_rows=num_rows)
        return ChosenTrees(
            self.options, max_columns=self.max_columns, num_classes=num_classes, grows=grows
        )

    def finished(
        self, learner: ChosenTrees, states: tuple[ChosenTreesState, ...]
    ) -> tuple[ChosenTrees, tuple[ChosenTreesState, ...]]:
        """Trees and their weights alone, without the sums that the weights are solved from."""
        model = ChosenTrees(
            learner.options, max_columns=learner.max_columns, num_classes=learner.num_classes
        ).to(learner.device)
        return model, tuple(model.solved(state)._replace(growth=None) for state in states)

    def companion(self, counts: IntArray) -> Companion | None:
        """Few rows, or few outside the largest class: a learner without trees, and its weight."""
        num_rows, balanced = int(counts.sum()), balanced_rows(counts)
        weight = next((weight for most, weight in WEIGHTS_BESIDE if balanced <= most), 0.0)
        if self.others is None or not weight:
            return None
        if not FEWEST_ROWS <= num_rows <= MOST_ROWS_BESIDE:
            return None
        return Companion(self.others().for_table(len(counts), num_rows), weight)


def balanced_rows(counts: IntArray) -> int:
    """How many rows there would be if the largest class had as many as all others together.

    At most all rows. `counts` are the rows of each class. Rows of the largest class beyond that
    teach little about the others.
    """
    num_rows = int(counts.sum())
    return min(num_rows, 2 * (num_rows - int(counts.max())))
