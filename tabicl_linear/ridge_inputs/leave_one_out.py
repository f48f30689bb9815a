"""Context rows predicted from all others: for models whose rows see the whole context anyway."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

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
    Regression,
    RidgeSums,
    of_set,
    solve_rows,
    solve_sums,
)
from tabicl_linear.types import Float, Tensor

MOST_SAMPLED = 2048
"""Rows at most, evenly spread over the context, by which penalties and confidence are chosen."""

Chunk = tuple[Float[Tensor, "b _n f"], Float[Tensor, "b _n y"]]
"""Features and one-hot labels of some rows."""


class LeaveOneOut(NamedTuple):
    """A solved context, of which rows can be left out one by one.

    Attributes:
        sets: What each regression takes of the features.
        regressions: The regression on each set, with the penalty chosen.
        solution: What predicts other rows.
    """

    sets: Sequence[FeatureSet]
    regressions: Sequence[Regression]
    solution: Solution

    def context(self, f: Float[Tensor, "b n f"], r: Float[Tensor, "b n y"]) -> RidgePredictions:
        """Predictions of context rows, each from all others."""
        pairs = zip(self.regressions, self.sets, strict=True)
        shares = [regression.left_out(of_set(f, part), r)[0] for regression, part in pairs]
        return self.solution.about(torch.stack(shares, dim=2))


def solve(
    chunks: Callable[[], Iterator[Chunk]],
    sets: Sequence[FeatureSet],
    penalties: Sequence[float],
) -> LeaveOneOut:
    """Sums over all chunks, then the penalties and the confidence that suit a sample of rows best.

    Args:
        chunks: Gives all rows of the context, in order, at every call.
        sets: What each regression takes of the features.
        penalties: To choose from for each task and set.
    """
    regressions, sample = _solved(chunks, sets, penalties)
    f, r = sample
    pairs = zip(regressions, sets, strict=True)
    left_out = torch.stack([regression.left_out(of_set(f, part), r) for regression, part in pairs])
    errors = (left_out - r).square().sum((-1, -2))
    best = errors.argmin(1)
    chosen = left_out[torch.arange(len(sets))[:, None], best, torch.arange(len(r))]
    wrong = (chosen - r).flatten(2)
    mixture = best_mixture(torch.einsum("sbi,tbi->bst", wrong, wrong))
    shares = torch.einsum("bs,sbny->bny", mixture, chosen)
    solved = zip(regressions, best, strict=True)
    regressions = [regression.choose(penalty) for regression, penalty in solved]
    linear = [regression.linear() for regression in regressions]
    prior = regressions[0].shares
    scatter = (r - prior[:, None]).square().sum((-1, -2)).clamp(min=SMALLEST_VARIANCE)
    confidence = confidence_losses(shares, r, prior[:, None] > 0).argmin(0)
    solution = Solution(
        weights=tuple(weights[0] for weights, _ in linear),
        offsets=torch.stack([offsets[0] for _, offsets in linear], dim=1),
        prior=prior,
        errors=(errors.amin(1) / scatter).T,
        mixture=mixture,
        confidence=prior.new_tensor(CONFIDENCES)[confidence].unsqueeze(-1),
    )
    return LeaveOneOut(sets, regressions, solution)


def _solved(
    chunks: Callable[[], Iterator[Chunk]], sets: Sequence[FeatureSet], penalties: Sequence[float]
) -> tuple[list[Regression], Chunk]:
    """The regressions on all sets, and a sample of rows."""
    held: list[Chunk] = []
    sums, num_rows = None, 0
    for f, r in chunks():
        num_rows += f.shape[1]
        if sums is None and num_rows <= min(f.shape[2], MOST_SAMPLED):
            held.append((f, r))
            continue
        for part in (*held, (f, r)):
            more = RidgeSums.of(*part)
            sums = more if sums is None else sums.plus(more)
        held = []
    if sums is None:
        sample = _joined(held)
        return [solve_rows(*sample, part, penalties) for part in sets], sample
    sample = _joined(_every(chunks(), -(-num_rows // MOST_SAMPLED)))
    return [solve_sums(sums, part, penalties) for part in sets], sample


def _every(chunks: Iterator[Chunk], step: int) -> Iterator[Chunk]:
    """The first of every `step` rows, wherever the chunks begin."""
    start = 0
    for f, r in chunks:
        kept = slice(-start % step, None, step)
        yield f[:, kept], r[:, kept]
        start += f.shape[1]


def _joined(chunks: Iterable[Chunk]) -> Chunk:
    rows, labels = zip(*chunks, strict=True)
    return torch.cat(rows, dim=1), torch.cat(labels, dim=1)
