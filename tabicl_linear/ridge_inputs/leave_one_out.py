"""Context rows predicted from all others: for models whose rows see the whole context anyway."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.class_map import fit_class_map, scaled
from tabicl_linear.ridge_inputs.options import Calibration
from tabicl_linear.ridge_inputs.predictions import (
    CONFIDENCES,
    RidgePredictions,
    Solution,
    best_mixture,
    confidence_losses,
)
from tabicl_linear.ridge_inputs.solve import (
    SMALLEST_VARIANCE,
    FeatureSet,
    OfSums,
    Regression,
    RidgeSums,
    of_set,
    solve_rows,
    solve_sums,
)
from tabicl_linear.types import Float, Int, Tensor

MOST_SAMPLED = 2048
"""Rows at most, evenly spread over the context, by which penalties and confidence are chosen."""

Chunk = tuple[Float[Tensor, "b _n f"], Float[Tensor, "b _n y"]]
"""Features and one-hot labels of some rows."""


class LeaveOneOut(NamedTuple):
    """A solved context, of which rows can be left out one by one.

    Attributes:
        sets: What each regression takes of the features.
        solution: What predicts other rows.
        known: Predictions of all its rows, where there were few enough to need them all.
        regressions: Otherwise, what predicts them: a regression on each set, with the penalty
            chosen.
    """

    sets: Sequence[FeatureSet]
    solution: Solution
    known: RidgePredictions | None
    regressions: Sequence[OfSums]

    def context(self, f: Float[Tensor, "b n f"], r: Float[Tensor, "b n y"]) -> RidgePredictions:
        """Predictions of context rows, each from all others, that are not `known`."""
        pairs = zip(self.regressions, self.sets, strict=True)
        shares = [regression.left_out(of_set(f, part), r)[0] for regression, part in pairs]
        return self.solution.about(torch.stack(shares, dim=2))


def solve(
    chunks: Callable[[int], Iterator[Chunk]],
    sets: Sequence[FeatureSet],
    penalties: Sequence[float],
    calibration: Calibration,
) -> LeaveOneOut:
    """Sums over all chunks, then the penalties and the confidence that suit a sample of rows best.

    Args:
        chunks: Gives every so-manieth row of the context, from the first on, in order.
        sets: What each regression takes of the features.
        penalties: To choose from for each task and set.
        calibration: How logits are made of shares.
    """
    held, sums = _read(chunks(1))
    if sums is None:
        f, r = _joined(held)
        regressions, left_out = zip(
            *(solve_rows(f, r, part, penalties) for part in sets), strict=True
        )
        choice = _choose(torch.stack(left_out), r, regressions[0].shares, calibration)
        solution = _solution(regressions, choice)
        return LeaveOneOut(sets, solution, solution.about(choice.shares), ())
    sample = _joined(chunks(-(-sums.rows // MOST_SAMPLED)))
    return _solve_sums(sums, sample, sets, penalties, calibration)


def _solve_sums(
    sums: RidgeSums,
    sample: Chunk,
    sets: Sequence[FeatureSet],
    penalties: Sequence[float],
    calibration: Calibration,
) -> LeaveOneOut:
    f, r = sample
    solved = [solve_sums(sums, part, penalties) for part in sets]
    pairs = zip(solved, sets, strict=True)
    left_out = torch.stack([each.left_out(of_set(f, part), r) for each, part in pairs])
    regressions = [each.regression for each in solved]
    choice = _choose(left_out, r, regressions[0].shares, calibration)
    solution = _solution(regressions, choice)
    if r.shape[1] == sums.rows:
        return LeaveOneOut(sets, solution, solution.about(choice.shares), ())
    kept = [each.choose(best) for each, best in zip(solved, choice.penalties, strict=True)]
    return LeaveOneOut(sets, solution, None, kept)


class _Choice(NamedTuple):
    """What suits some rows best.

    Attributes:
        penalties: Index of the penalty of each set and task.
        errors: Mean squared errors with these, in units of that of the class shares.
        mixture: Of the sets.
        confidence: Of the mixture.
        class_map: Of the mixture.
        shares: Predictions of the rows with these penalties.
    """

    penalties: Int[Tensor, "s b"]
    errors: Float[Tensor, "b s"]
    mixture: Float[Tensor, "b s"]
    confidence: Float[Tensor, "b 1"]
    class_map: Float[Tensor, "b y z"]
    shares: Float[Tensor, "b n s y"]


def _choose(
    left_out: Float[Tensor, "s p b n y"],
    r: Float[Tensor, "b n y"],
    prior: Float[Tensor, "b y"],
    calibration: Calibration,
) -> _Choice:
    errors = (left_out - r).square().sum((-1, -2))
    best = errors.argmin(1)
    chosen = left_out[torch.arange(len(best))[:, None], best, torch.arange(len(r))]
    wrong = (chosen - r).flatten(2)
    mixture = best_mixture(torch.einsum("sbi,tbi->bst", wrong, wrong))
    shares = torch.einsum("bs,sbny->bny", mixture, chosen)
    scatter = (r - prior[:, None]).square().sum((-1, -2)).clamp(min=SMALLEST_VARIANCE)
    losses = confidence_losses(shares, r, prior[:, None] > 0)
    confidence = r.new_tensor(CONFIDENCES)[losses.argmin(0)].unsqueeze(-1)
    class_map = scaled(confidence, r.shape[-1])
    if calibration == "logistic":
        class_map = fit_class_map(shares, r, prior > 0, class_map)
    return _Choice(
        penalties=best,
        errors=(errors.amin(1) / scatter).T,
        mixture=mixture,
        confidence=confidence,
        class_map=class_map,
        shares=chosen.movedim(0, 2),
    )


def _solution(regressions: Sequence[Regression], choice: _Choice) -> Solution:
    pairs = zip(regressions, choice.penalties, strict=True)
    linear = [regression.choose(penalty).linear() for regression, penalty in pairs]
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
    """All rows, or where they are more than features, sums over them."""
    held: list[Chunk] = []
    sums, num_rows = None, 0
    for f, r in chunks:
        num_rows += f.shape[1]
        if sums is None and num_rows <= min(f.shape[2], MOST_SAMPLED):
            held.append((f, r))
            continue
        for part in (*held, (f, r)):
            more = RidgeSums.of(*part)
            sums = more if sums is None else sums.plus(more)
        held = []
    return held, sums


def _joined(chunks: Iterable[Chunk]) -> Chunk:
    rows, labels = zip(*chunks, strict=True)
    return torch.cat(rows, dim=1), torch.cat(labels, dim=1)
