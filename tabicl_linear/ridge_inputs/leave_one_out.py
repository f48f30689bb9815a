"""Predicts context rows from all others, for models whose rows see the whole context anyway."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.class_map import FittedMap, fit_class_map, scaled
from tabicl_linear.ridge_inputs.feature_sets import SMALLEST_VARIANCE, FeatureSet, of_set
from tabicl_linear.ridge_inputs.options import Calibration
from tabicl_linear.ridge_inputs.predictions import (
    RidgePredictions,
    Solution,
    best_confidence,
    best_mixture,
    confidence_losses,
)
from tabicl_linear.ridge_inputs.solve import (
    OfSums,
    Regression,
    chosen_penalties,
    solve_moments,
    without_own,
)
from tabicl_linear.ridge_inputs.solve_rows import solve_rows
from tabicl_linear.ridge_inputs.solved import assert_solved
from tabicl_linear.ridge_inputs.sums import Moments, RidgeSums
from tabicl_linear.types import Float, Int, Tensor

MOST_SAMPLED = 2048
"""Maximum number of rows, evenly spread over the context, that choose penalties and confidence."""

Chunk = tuple[Float[Tensor, "b _n f"], Float[Tensor, "b _n y"]]
"""Features and one-hot labels of some rows."""


class LeaveOneOut(NamedTuple):
    """A solved context whose rows can be left out one by one.

    Attributes:
        sets: The features that each regression takes.
        solution: Predicts other rows.
        predictions: Predictions of all context rows, if choosing penalties needed all of them.
        regressions: Otherwise, what predicts context rows: a regression on each set, with the
            penalty that was chosen.
        step: Rows 0, `step`, 2 `step`, ... of the context have chosen the penalties.
        class_map: The class map that was fitted to these rows; None without one.
    """

    sets: Sequence[FeatureSet]
    solution: Solution
    predictions: RidgePredictions | None
    regressions: Sequence[OfSums]
    step: int
    class_map: FittedMap | None

    def context(
        self, features: Float[Tensor, "b n f"], targets: Float[Tensor, "b n y"], first: int = 0
    ) -> RidgePredictions:
        """Predictions of context rows, each from all others, if `predictions` is None.

        Args:
            features: Features of the rows.
            targets: Their one-hot labels.
            first: Index in the context of the first of these rows.
        """
        pairs = zip(self.regressions, self.sets, strict=True)
        leverages = torch.cat([each.leverages(of_set(features, part)) for each, part in pairs])
        shares, prior = self.solution.shares(features, self.sets), self.solution.prior
        prior = prior[:, None, None]  # the same for all rows and sets
        others = without_own(shares - prior, leverages.movedim(0, 2), targets[:, :, None], prior)
        predictions = self.solution.about(others)
        if self.class_map is None:
            return predictions
        sampled = slice(-first % self.step, None, self.step)
        scores = predictions.scores.clone()
        mixed = predictions.mixed()[:, sampled]
        scores[:, sampled] = self.class_map.left_out(mixed, targets[:, sampled])
        return predictions._replace(scores=scores)


def solve(
    chunks: Callable[[int], Iterator[Chunk]],
    sets: Sequence[FeatureSet],
    penalties: Sequence[float],
    calibration: Calibration,
) -> LeaveOneOut:
    """Solve a context with the penalties and the confidence that suit a sample of its rows best.

    Args:
        chunks: Takes a step s, and yields rows 0, s, 2s, ... of the context in pieces.
        sets: The features that each regression takes.
        penalties: Penalties to choose from, for each task and set.
        calibration: How shares become logits.

    Raises:
        torch.linalg.LinAlgError: A regression has no solution.
    """
    pieces, sums = _read(chunks(1))
    if sums is None:
        features, targets = _joined(pieces)
        rows = solve_rows(features, targets, sets, penalties)
        choice = _choose(rows.left_out, targets, rows.shares, calibration)
        return _of_all(sets, _solution(rows.choose(choice.penalties), choice), choice, targets)
    step = -(-sums.rows // MOST_SAMPLED)
    features, targets = _joined(chunks(step))
    moments = Moments.of([sums])
    solved = [solve_moments(moments, part, penalties) for part in sets]
    parts = zip(solved, (of_set(features, part) for part in sets), strict=True)
    left_out = torch.stack([each.left_out(part, targets) for each, part in parts])
    choice = _choose(left_out, targets, moments.shares, calibration)
    pairs = list(zip(solved, choice.penalties, strict=True))
    solution = _solution([each.regression.choose(best) for each, best in pairs], choice)
    if step == 1:
        return _of_all(sets, solution, choice, targets)
    solutions = [each.choose(best) for each, best in pairs]
    return LeaveOneOut(sets, solution, None, solutions, step, choice.fitted)


def _of_all(
    sets: Sequence[FeatureSet],
    solution: Solution,
    choice: "_Choice",
    targets: Float[Tensor, "b n y"],
) -> LeaveOneOut:
    """The solved context, if all of its rows have been predicted to choose penalties."""
    predictions = solution.about(choice.shares)
    if choice.fitted is not None:
        predictions = predictions._replace(
            scores=choice.fitted.left_out(predictions.mixed(), targets)
        )
    return LeaveOneOut(sets, solution, predictions, (), 1, choice.fitted)


class _Choice(NamedTuple):
    """What predicts some left-out rows best.

    Attributes:
        penalties: Index of the penalty of each set and task.
        errors: Mean squared errors with these, in units of that of the class shares.
        mixture: Weight of each set in the mixture of all.
        confidence: Factor that makes logits of the mixture.
        class_map: Linear map that makes logits of the mixture.
        fitted: The same map with what is needed to leave rows out; None if it was not fitted.
        shares: Predictions of the rows with these penalties.
    """

    penalties: Int[Tensor, "s b"]
    errors: Float[Tensor, "b s"]
    mixture: Float[Tensor, "b s"]
    confidence: Float[Tensor, "b 1"]
    class_map: Float[Tensor, "b y z"]
    fitted: FittedMap | None
    shares: Float[Tensor, "b n s y"]


def _choose(
    left_out: Float[Tensor, "s p b n y"],
    targets: Float[Tensor, "b n y"],
    prior: Float[Tensor, "b y"],
    calibration: Calibration,
) -> _Choice:
    """Choose by the predictions of left-out rows with every set and penalty.

    `targets` are the one-hot labels of these rows, and `prior` the class shares of the context.
    """
    errors = (left_out - targets).square().sum((-1, -2))
    best = errors.argmin(1)
    predictions = chosen_penalties(left_out, best)
    residuals = (predictions - targets).flatten(2)
    mixture = best_mixture(torch.einsum("sbi,tbi->bst", residuals, residuals))
    shares = torch.einsum("bs,sbny->bny", mixture, predictions)
    scatter = (targets - prior[:, None]).square().sum((-1, -2)).clamp(min=SMALLEST_VARIANCE)
    losses = confidence_losses(shares, targets, prior[:, None] > 0)
    confidence = best_confidence(losses)
    class_map, fitted = scaled(confidence, targets.shape[-1]), None
    if calibration == "logistic":
        class_map = fit_class_map(shares, targets, prior > 0, class_map)
        fitted = FittedMap.of(class_map, shares, targets, prior > 0)
    return _Choice(
        penalties=best,
        errors=(errors.amin(1) / scatter).T,
        mixture=mixture,
        confidence=confidence,
        class_map=class_map,
        fitted=fitted,
        shares=predictions.movedim(0, 2),
    )


def _solution(regressions: Sequence[Regression], choice: _Choice) -> Solution:
    """The solution that predicts other rows, from the regressions with the chosen penalties."""
    linear = [regression.linear() for regression in regressions]
    # Offsets contain sums over all weights, so they are finite only if every weight is.
    assert_solved([offsets for _, offsets in linear])
    return Solution(
        weights=tuple(weights[0] for weights, _ in linear),
        offsets=torch.stack([offsets[0] for _, offsets in linear], dim=1),
        prior=regressions[0].shares,
        errors=choice.errors,
        mixture=choice.mixture,
        confidence=choice.confidence,
        class_map=choice.class_map,
    )


def _read(chunks: Iterator[Chunk]) -> tuple[list[Chunk], RidgeSums | None]:
    """All rows or, if there are more rows than features, the sums over them."""
    first_chunks: list[Chunk] = []
    sums, num_rows = None, 0
    for features, targets in chunks:
        num_rows += features.shape[1]
        if sums is None and num_rows <= min(features.shape[2], MOST_SAMPLED):
            first_chunks.append((features, targets))
            continue
        for part in (*first_chunks, (features, targets)):
            more = RidgeSums.of(*part)
            sums = more if sums is None else sums.plus(more)
        first_chunks = []
    return first_chunks, sums


def _joined(chunks: Iterable[Chunk]) -> Chunk:
    rows, labels = zip(*chunks, strict=True)
    return torch.cat(rows, dim=1), torch.cat(labels, dim=1)
