"""Closed forms and chosen trees, without and with learned features, as one learner.

All arms of a table are fitted to the same rows in one call, so that differences are paired.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from experiments.solved_head.class_statistics import ClassStatistics, class_slots, folds
from experiments.solved_head.honest_trees import Honest
from experiments.solved_head.network import LearnedFeatures, LearnedOptions
from tabicl_linear.backends.choice import tokenwise
from tabicl_linear.checkpoint_file import load_checkpoint
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics, standardise
from tabicl_linear.estimator.arrays import IntArray
from tabicl_linear.estimator.learners.chosen_trees.context import TaskRows
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import OPTIONS, ChosenTrees
from tabicl_linear.estimator.learners.chosen_trees.divisions import (
    HALVES,
    Division,
    divisions,
    of_divisions,
    scheme,
)
from tabicl_linear.estimator.learners.chosen_trees.fixed_alone import Penalties
from tabicl_linear.estimator.learners.chosen_trees.solving import LeafRows, Linear
from tabicl_linear.estimator.learners.chosen_trees.task_fit import (
    TreePredictor,
    fit_divisions,
    fit_rows,
)
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees
from tabicl_linear.kernels.chosen import using
from tabicl_linear.ridge_inputs.feature_sets import FeatureSet, Part
from tabicl_linear.ridge_inputs.leave_one_out import solve
from tabicl_linear.ridge_inputs.predictions import Solution
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
    """What a network makes of rows by the labels of one half of a context.

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
        x: Float[Tensor, "1 g m"],
        y: Int[Tensor, "1 g"],
        statistics: ContextStatistics,
        num_classes: int,
    ) -> "LearnedContext":
        """Sums over the rows whose labels are read.

        Args:
            network: Makes the features.
            x: The rows.
            y: Their labels.
            statistics: Of the whole context.
            num_classes: Classes of the table.
        """
        labels = torch.nn.functional.one_hot(y, num_classes).sum(1).double()
        z, present = standardise(x, statistics).float(), x.isfinite()
        empty = ClassStatistics.empty(z, present, class_slots(labels))
        whole = empty.plus(z, present, y, folds(1, x.shape[1]))
        return cls(network, statistics, whole.seen())

    def features(self, x: Float[Tensor, "1 n m"]) -> Float[Tensor, "n f"]:
        """Of rows whose labels are not read."""
        features, categorical = list[Tensor](), self.statistics.categorical
        for part in x.split(ROWS_AT_ONCE, dim=1):
            z = standardise(part, self.statistics).float()
            features.append(self.network(z, part.isfinite(), categorical, self.seen, None)[0])
        return torch.cat(features)


class RowsWithLearned:
    """Rows of one division whose features are fixed and learned ones; see `TaskRows`.

    Learned features of both halves stand side by side, as one kind that counts like a fixed one;
    here those that read the labels of the solved half are zero, and so are their weights.

    Args:
        rows: With fixed features.
        learned: Learned features of the rows that are solved.
        part: The division.
        side: Which half grows, 0 or 1.
    """

    def __init__(
        self, rows: TaskRows, learned: Float[Tensor, "s f"], part: Division, side: int
    ) -> None:
        self._rows, self._learned, self._part, self._side = rows, learned, part, side
        self.labels, self.counts, self.sample = rows.labels, rows.counts, rows.sample
        self.regressions, self.standardised = rows.regressions, rows.standardised
        self.num_columns = rows.num_columns
        self.one_hot, self.chunks = rows.one_hot, rows.chunks
        start = rows.kinds[-1].stop
        self.kinds = [*rows.kinds, slice(start, start + HALVES * learned.shape[1])]

    def __len__(self) -> int:
        return len(self._rows)

    def fixed(self, rows: IntArray) -> Float[Tensor, "n f"]:
        """Fixed features of solved rows and, behind them, learned ones."""
        own = self._learned[torch.from_numpy(np.searchsorted(self._part.solving, rows))]
        pair = [own, torch.zeros_like(own)] if self._side == 0 else [torch.zeros_like(own), own]
        return torch.cat([self._rows.fixed(rows), *pair], dim=1)

    def leaf_rows(self, rows: IntArray, trees: Trees) -> LeafRows:
        """Some rows as a regression on these trees takes them."""
        leaves = trees.of_rows(self.standardised(rows))
        return LeafRows(leaves, self.fixed(rows), self.one_hot(rows).float())

    def fixed_regressions(self, penalties: Penalties | None = None) -> tuple[Linear, Penalties]:
        """Regressions on fixed features alone, on all rows: learned ones have no weight."""
        solution, chosen = self._rows.fixed_regressions(penalties)
        width = HALVES * self._learned.shape[1]
        weights = torch.nn.functional.pad(solution.fixed, (0, 0, 0, width))
        return solution._replace(fixed=weights), chosen

    @property
    def sets(self) -> list[FeatureSet]:
        """All kinds together, and learned features alone."""
        every = [Part(kind, 1.0) for kind in self.kinds]
        return [every, every[-1:]]


class SolvedForm(NamedTuple):
    """A closed form, and what it says of rows left out.

    Attributes:
        solution: Predicts rows.
        sets: What each regression takes of the features.
        indices: Rows of the sample that it is solved on.
        left_out: Logits of these.
    """

    solution: Solution
    sets: Sequence[FeatureSet]
    indices: IntArray
    left_out: Float[Tensor, "s y"]


def closed_form(
    rows: TaskRows | RowsWithLearned, sets: Sequence[FeatureSet], solving: IntArray
) -> SolvedForm:
    """Regressions on some rows, and what they say of the sample, each row by all others."""

    def chunks(step: int) -> Iterator[tuple[Tensor, Tensor]]:
        for chunk in rows.chunks(solving[::step]):
            yield rows.fixed(chunk)[None], rows.one_hot(chunk)[None]

    options = rows.regressions.options
    solved = solve(chunks, sets, options.penalties, options.calibration)
    if solved.predictions is not None:
        shares = solved.predictions.mixed()[0]
    else:
        of_chunks, first = list[Tensor](), 0
        for chunk in rows.chunks(solving):
            part = solved.context(rows.fixed(chunk)[None], rows.one_hot(chunk)[None], first)
            of_chunks.append(part.mixed()[0])
            first += len(chunk)
        shares = torch.cat(of_chunks)
    is_sampled = np.isin(solving, rows.sample)
    shares, indices = shares[torch.from_numpy(is_sampled)].double(), solving[is_sampled]
    labels = torch.from_numpy(rows.labels[indices])
    logits = Honest.of_shares(shares, solved.solution, labels).logits
    return SolvedForm(solved.solution, sets, indices, logits)


class ArmsState(NamedTuple):
    """What all arms have fitted; a single task.

    Attributes:
        thresholds: Of each round.
        statistics: By which rows are standardised.
        learned: What makes learned features, in each division; empty without.
        closed: The closed forms; that of more than one is the mean of their logits.
        trees: Chosen trees.
        honest: What each arm says of rows that were left out.
        seconds: CPU seconds of each arm, and of learned features.
    """

    thresholds: tuple[Tensor, ...]
    statistics: ContextStatistics
    learned: list[LearnedContext]
    closed: list[SolvedForm]
    trees: TreePredictor
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
        state: None = None,
    ) -> "MemberStates":
        """Fit all arms."""
        members = zip(x.split(1), y.split(1), categorical.split(1), strict=True)
        with using(tokenwise(device=self.device, backend="auto")):
            return MemberStates(tuple(self._fit(*member, rows_per_chunk) for member in members))

    def _fit(self, x: Tensor, y: Tensor, categorical: Tensor, size: int) -> ArmsState:
        clock = Clock()
        statistics = context_statistics(x, y, categorical, num_features=None, rows_per_chunk=size)
        draws = self.trees.draws(max(scheme(x.shape[1]).rounds, 1))
        thresholds = tuple(each.thresholds(x, statistics, size) for each in draws)
        rows = [
            TaskRows(each, x, y, limits, statistics, size)
            for each, limits in zip(draws, thresholds, strict=True)
        ]
        everything = np.arange(len(rows[0]))
        clock.take("shared")
        contexts = list[LearnedContext]()
        if self.network is None:
            closed = [closed_form(rows[0], draws[0].features.sets(x.shape[2]), everything)]
            clock.take(self.arms[0])
            predictor, left_out = fit_rows(rows)
        else:
            parts = divisions(rows[0].labels, len(rows), seed=draws[0].options.seed)
            with_learned = list[RowsWithLearned]()
            for number, (of_round, part) in enumerate(zip(of_divisions(rows), parts, strict=True)):
                growing = torch.from_numpy(part.growing)
                pair = x[:, growing], y[:, growing]
                context = LearnedContext.of(self.network, *pair, statistics, self.num_classes)
                learned = context.features(x[:, torch.from_numpy(part.solving)])
                contexts.append(context)
                with_learned.append(RowsWithLearned(of_round, learned, part, number % HALVES))
            clock.take("features")
            pairs = zip(with_learned[:HALVES], parts, strict=False)
            closed = [closed_form(each, each.sets, part.solving) for each, part in pairs]
            clock.take(self.arms[0])
            predictor, left_out = fit_divisions(with_learned, parts)
        clock.take(self.arms[1])
        honest = Honest(left_out, torch.from_numpy(rows[0].labels[rows[0].sample]))
        by_arm = {self.arms[0]: mean_left_out(closed, rows[0]), self.arms[1]: honest}
        return ArmsState(thresholds, statistics, contexts, closed, predictor, by_arm, clock.seconds)

    def predict(self, state: "MemberStates", x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of the arm that is named."""
        members = zip(state.states, x.split(1), strict=True)
        return torch.cat([self._predict(*member) for member in members])

    def _predict(self, state: ArmsState, x: Tensor) -> Tensor:
        draws = self.trees.draws(len(state.thresholds))
        fixed = [
            each.of_rows(x, limits, state.statistics)[0]
            for each, limits in zip(draws, state.thresholds, strict=True)
        ]
        if state.learned:
            learned = [each.features(x) for each in state.learned]
            fixed = [
                torch.cat([part, *learned[HALVES * number :][:HALVES]], dim=1)
                for number, part in enumerate(fixed)
            ]
        if self.arm == self.arms[0]:
            shares = [form.solution.predict(fixed[0][None], form.sets) for form in state.closed]
            return torch.stack([each.logits() for each in shares]).mean(0)
        z = standardise(x, state.statistics)[0].float()
        weighted = torch.cat(fixed, dim=1).to(state.trees.fixed) @ state.trees.fixed
        return state.trees.logits(z, weighted)[None]


def mean_left_out(closed: Sequence[SolvedForm], rows: TaskRows) -> Honest:
    """What closed forms say of the sample: each row is left out by those that are solved on it."""
    labels = torch.from_numpy(rows.labels[rows.sample])
    sums = closed[0].left_out.new_zeros(len(labels), closed[0].left_out.shape[1])
    count = sums.new_zeros(len(labels), 1)
    for each in closed:
        places = torch.from_numpy(np.searchsorted(rows.sample, each.indices))
        sums[places] += each.left_out
        count[places] += 1
    assert bool((count > 0).all()), "a row of the sample that no closed form is solved on"
    return Honest(sums / count, labels)


class MemberStates:
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
