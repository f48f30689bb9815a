"""Closed forms and chosen trees, without and with learned features, as one learner.

All arms of a table are fitted to the same rows in one call, so that differences are paired.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from experiments.solved_head.honest_trees import Honest, fit_honestly
from experiments.solved_head.tasks import LEARNED
from tabicl_linear.backends.choice import tokenwise
from tabicl_linear.checkpoint_file import load_checkpoint
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics, standardise
from tabicl_linear.estimator.learners.chosen_trees.context import Indices, TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import rounds
from tabicl_linear.estimator.learners.chosen_trees.learner import ChosenTrees
from tabicl_linear.estimator.learners.chosen_trees.learners import OPTIONS
from tabicl_linear.estimator.learners.chosen_trees.predictor import Predictor
from tabicl_linear.estimator.learners.chosen_trees.solving import Rows
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees
from tabicl_linear.kernels.chosen import using
from tabicl_linear.ridge_inputs import RidgeRegressions
from tabicl_linear.ridge_inputs.leave_one_out import solve
from tabicl_linear.ridge_inputs.predictions import Solution
from tabicl_linear.ridge_inputs.solve import FeatureSet, Part
from tabicl_linear.solved_head.class_statistics import ClassStatistics, class_slots, folds
from tabicl_linear.solved_head.network import LearnedFeatures, LearnedOptions
from tabicl_linear.types import Bool, Float, Int, Tensor

ROWS_AT_ONCE = 512
FIXED = ("closed", "trees")
"""Arms without learned features."""
WITH_LEARNED = ("closed+learned", "trees+learned")


def trained(path: Path) -> LearnedFeatures:
    """The averaged weights of a run."""
    saved = load_checkpoint(path, "train it with experiments.solved_head.run")
    network = LearnedFeatures(LearnedOptions(**saved["options"]))
    network.load_state_dict(saved["average"])
    return network.eval()


class LearnedContext(NamedTuple):
    """What a network makes of the rows of one context, and of others.

    Attributes:
        network: Makes the features.
        statistics: By which rows are standardised.
        seen: What the columns say about the classes.
    """

    network: LearnedFeatures
    statistics: ContextStatistics
    seen: ClassStatistics

    @classmethod
    def of(
        cls,
        network: LearnedFeatures,
        x: Float[Tensor, "1 c m"],
        y: Int[Tensor, "1 c"],
        statistics: ContextStatistics,
        num_classes: int,
    ) -> "LearnedContext":
        """Statistics of all context rows."""
        labels = torch.nn.functional.one_hot(y, num_classes).sum(1).double()
        z, present = standardise(x, statistics).float(), x.isfinite()
        empty = ClassStatistics.empty(z, present, class_slots(labels))
        whole = empty.plus(z, present, y, folds(1, x.shape[1]))
        return cls(network, statistics, whole.seen())

    def features(self, x: Float[Tensor, "1 n m"], *, is_context: bool) -> Float[Tensor, "n f"]:
        """Of all context rows in order, or of other rows."""
        fold, found = folds(1, x.shape[1]) if is_context else None, list[Tensor]()
        for first in range(0, x.shape[1], ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            part = x[:, rows]
            read = None if fold is None else fold[:, rows]
            z = standardise(part, self.statistics).float()
            categorical = self.statistics.categorical
            found.append(self.network(z, part.isfinite(), categorical, self.seen, read)[0])
        return torch.cat(found)


class RowsWithLearned:
    """Rows of a context whose features are fixed and learned ones; what trees ask of `TaskRows`.

    Args:
        rows: With fixed features.
        learned: Learned features of all of them, which beside trees count like one kind of fixed
            ones.
    """

    def __init__(self, rows: TaskRows, learned: Float[Tensor, "c f"]) -> None:
        self._rows, self._learned = rows, learned
        self.labels, self.sample = rows.labels, rows.sample
        self.regressions, self.standardised = rows.regressions, rows.standardised
        self.one_hot, self.chunks = rows.one_hot, rows.chunks
        start, width = rows.kinds[-1].stop, learned.shape[1]
        self.kinds = [*rows.kinds, slice(start, start + width)]

    def __len__(self) -> int:
        return len(self._rows)

    def fixed(self, rows: Indices) -> Float[Tensor, "n f"]:
        """Fixed features and, behind them, learned ones."""
        return torch.cat([self._rows.fixed(rows), self._learned[torch.from_numpy(rows)]], dim=1)

    def taken(self, rows: Indices, trees: Trees) -> Rows:
        """Some rows as a regression on these trees takes them."""
        leaves = trees.of_rows(self.standardised(rows))
        return Rows(leaves, self.fixed(rows), self.one_hot(rows).float())

    def solved_fixed(self) -> tuple[Tensor, Tensor, Tensor]:
        """The regressions without chosen trees; see `TaskRows.solved_fixed`."""
        width = self._learned.shape[1]
        sets = sets_with_learned(self.regressions, self.kinds, width)
        solution, left_out = closed_form(self, sets)
        weights = solution.weights[0].new_zeros(self.kinds[-1].stop, solution.offsets.shape[2])
        for part, of_set, kinds in zip(solution.mixture[0], solution.weights, sets, strict=True):
            start = 0
            for kind in kinds:
                weights[kind.place] += part * of_set[0, start : start + kind.size]
                start += kind.size
        return weights, solution.mixture[0] @ solution.offsets[0], left_out


def sets_with_learned(
    regressions: RidgeRegressions, kinds: Sequence[slice], width: int
) -> list[FeatureSet]:
    """The fixed sets, then all fixed kinds with learned features, then learned ones alone."""
    start = kinds[-1].stop - width if width else kinds[-1].stop
    of_kinds = [kind for kind in kinds if kind.stop <= start]
    sizes = of_kinds[0].stop - of_kinds[0].start
    num_columns = sizes // 6
    sets: list[FeatureSet] = list(regressions.features.sets(num_columns))
    place = slice(start, start + width)
    every = [Part(kind, 1.0) for kind in of_kinds]
    return [*sets, [*every, Part(place, LEARNED)], [Part(place, 1.0)]]


def closed_form(
    rows: TaskRows | RowsWithLearned, sets: Sequence[FeatureSet]
) -> tuple[Solution, Float[Tensor, "s y"]]:
    """Regressions on all rows, and what they predict of the sample, each row from all others."""
    everything = np.arange(len(rows))

    def chunks(step: int) -> Iterator[tuple[Tensor, Tensor]]:
        for some in rows.chunks(everything[::step]):
            yield rows.fixed(some)[None], rows.one_hot(some)[None]

    options = rows.regressions.options
    solved = solve(chunks, sets, options.penalties, options.calibration)
    if solved.predictions is not None:
        return solved.solution, solved.predictions.mixed()[0][rows.sample].double()
    found, first = list[Tensor](), 0
    for some in rows.chunks(everything):
        part = solved.context(rows.fixed(some)[None], rows.one_hot(some)[None], first)
        found.append(part.mixed()[0])
        first += len(some)
    return solved.solution, torch.cat(found)[rows.sample].double()


class ArmsState(NamedTuple):
    """What all arms have fitted; a single task.

    Attributes:
        thresholds: Of each round.
        statistics: By which rows are standardised.
        learned: What makes learned features; None without.
        closed: The closed form, and its sets.
        trees: Chosen trees.
        honest: What each arm says of rows that were left out.
        seconds: CPU seconds of each arm, and of learned features.
    """

    thresholds: tuple[Tensor, ...]
    statistics: ContextStatistics
    learned: LearnedContext | None
    closed: tuple[Solution, Sequence[FeatureSet]]
    trees: Predictor
    honest: dict[str, Honest]
    seconds: dict[str, float]


class Arms:
    """A learner that fits both arms of a kind and predicts with the one that is named.

    Args:
        network: Makes learned features; None for arms without.
        num_classes: Classes of the table.
        max_columns: Columns of a member.

    Attributes:
        arms: `WITH_LEARNED`, or `FIXED`.
        arm: One of them.
    """

    def __init__(self, network: LearnedFeatures | None, num_classes: int, max_columns: int) -> None:
        self.network, self.max_columns, self.num_classes = network, max_columns, num_classes
        self.arms = FIXED if network is None else WITH_LEARNED
        self.device = torch.device("cpu")
        self.trees = ChosenTrees(OPTIONS, max_columns=max_columns, num_classes=num_classes)
        self.arm = self.arms[0]

    def to(self, device: torch.device) -> "Arms":
        """Itself: it stays where it is."""
        return self

    def fit(
        self,
        x: Float[Tensor, "1 c m"],
        y: Int[Tensor, "1 c"],
        *,
        categorical: Bool[Tensor, "1 m"],
        rows_per_chunk: int,
        spill: Path | None = None,
    ) -> "Kept":
        """Fit all arms."""
        members = zip(x.split(1), y.split(1), categorical.split(1), strict=True)
        with using(tokenwise(device=self.device, backend="auto")):
            return Kept(tuple(self._fit(*member, rows_per_chunk) for member in members))

    def _fit(self, x: Tensor, y: Tensor, categorical: Tensor, size: int) -> ArmsState:
        clock = Clock()
        statistics = context_statistics(x, y, categorical, num_features=None, rows_per_chunk=size)
        draws = self.trees.draws(max(rounds(x.shape[1]), 1))
        thresholds = tuple(each.thresholds(x, statistics, size) for each in draws)
        rows = [
            TaskRows(each, x, y, limits, statistics, size)
            for each, limits in zip(draws, thresholds, strict=True)
        ]
        clock.take("shared")
        context, used, sets = None, list[Any](rows), list(draws[0].features.sets(x.shape[2]))
        if self.network is not None:
            context = LearnedContext.of(self.network, x, y, statistics, self.num_classes)
            features = context.features(x, is_context=True)
            used = [RowsWithLearned(each, features) for each in rows]
            sets = sets_with_learned(draws[0], used[0].kinds, features.shape[1])
            clock.take("features")
        closed, trees = self.arms
        solution, left_out = closed_form(used[0], sets)
        labels = torch.from_numpy(rows[0].labels[rows[0].sample])
        honest = {closed: Honest.of_shares(left_out, solution, labels)}
        clock.take(closed)
        predictor, honest[trees] = fit_honestly(used)
        clock.take(trees)
        return ArmsState(
            thresholds, statistics, context, (solution, sets), predictor, honest, clock.seconds
        )

    def predict(self, kept: "Kept", x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of the arm that is named."""
        pairs = zip(kept.states, x.split(1), strict=True)
        return torch.cat([self._predict(state, part) for state, part in pairs])

    def _predict(self, state: ArmsState, x: Tensor) -> Tensor:
        draws = self.trees.draws(len(state.thresholds))
        fixed = [
            each.of_rows(x, limits, state.statistics)[0]
            for each, limits in zip(draws, state.thresholds, strict=True)
        ]
        if state.learned is not None:
            learned = state.learned.features(x, is_context=False)
            fixed = [torch.cat([part, learned], dim=1) for part in fixed]
        if self.arm == self.arms[0]:
            solution, sets = state.closed
            return solution.predict(fixed[0][None], sets).logits()
        z = standardise(x, state.statistics)[0].float()
        return state.trees.logits(z, torch.cat(fixed, dim=1))[None]


class Kept:
    """States that the ensemble carries about as they are: no tree of tensors to be moved.

    Args:
        states: One for each member.
    """

    def __init__(self, states: tuple[ArmsState, ...]) -> None:
        self.states = states


class Clock:
    """CPU seconds of one step after the other."""

    def __init__(self) -> None:
        self._last, self.seconds = time.process_time(), dict[str, float]()

    def take(self, name: str) -> None:
        """What has passed since the last step."""
        now = time.process_time()
        self.seconds[name], self._last = now - self._last, now
