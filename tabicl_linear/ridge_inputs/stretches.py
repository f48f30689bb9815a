"""Rows from one solution to the next, how solutions did on them, and what is best after each.

Whatever does not depend on how rows were cut is found for all solutions at once.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.class_map import mapped, scaled
from tabicl_linear.ridge_inputs.predictions import (
    RidgePredictions,
    Solution,
    best_confidence,
    confidence_losses,
    offset_shares,
)
from tabicl_linear.ridge_inputs.recent_rows import RecentRows
from tabicl_linear.ridge_inputs.solve import SMALLEST_VARIANCE, FeatureSet, of_set
from tabicl_linear.types import Bool, Float, Tensor


class Candidates(NamedTuple):
    """Solutions of one set, one for each penalty, as linear functions of the features."""

    weights: Float[Tensor, "p b f y"]
    offsets: Float[Tensor, "p b y"]


SetCandidates = tuple[Candidates, ...]
"""Those of each set."""


class Stretch(NamedTuple):
    """Some rows.

    Attributes:
        f: Features.
        r: One-hot labels.
        prior: Class shares of all rows before each.
    """

    f: Float[Tensor, "b n f"]
    r: Float[Tensor, "b n y"]
    prior: Float[Tensor, "b n y"]

    @property
    def present(self) -> Bool[Tensor, "b n y"]:
        """Classes among the rows before each."""
        return self.prior > 0

    @property
    def known(self) -> Float[Tensor, "b n y"]:
        """Labels; zero for rows that are the first of their class."""
        return self.r * self.present

    def tried(self, by: SetCandidates, sets: Sequence[FeatureSet]) -> Float[Tensor, "s p b n y"]:
        """Shares that candidates predict."""
        f = self.f.double()
        pairs = zip(by, sets, strict=True)
        return torch.stack([offset_shares(of_set(f, kinds), *linear) for linear, kinds in pairs])

    def squared_errors(self, shares: Float[Tensor, "*s b n y"]) -> Float[Tensor, "*s b"]:
        """Of predicted shares, summed over rows and classes."""
        return (shares - self.r).square().sum((-1, -2))

    def error_products(self, shares: Float[Tensor, "b n s y"]) -> Float[Tensor, "b s s"]:
        """Sums over rows and classes of the products of the errors of any two sets."""
        wrong = shares - self.r.unsqueeze(2)
        return torch.einsum("bnsy,bnty->bst", wrong, wrong)

    def losses(self, shares: Float[Tensor, "b n y"]) -> Float[Tensor, "e b"]:
        """Log-loss at each confidence, summed over rows whose classes can be predicted."""
        return confidence_losses(shares, self.known, self.present)


class Choice(NamedTuple):
    """What suits the predictions of a solution best; see `RidgePredictions` and `Solution`."""

    errors: Float[Tensor, "b s"]
    mixture: Float[Tensor, "b s"]
    confidence: Float[Tensor, "b 1"]
    class_map: Float[Tensor, "b y z"]

    @classmethod
    def of(cls, solution: Solution) -> "Choice":
        """That of a solution."""
        return cls(solution.errors, solution.mixture, solution.confidence, solution.class_map)

    def predictions(
        self,
        rows: Stretch,
        shares: Float[Tensor, "b n s y"],
        mix: Float[Tensor, "b n y"],
    ) -> RidgePredictions:
        """Predicted shares and their mixture with what is known about them."""
        return RidgePredictions(
            shares,
            rows.prior,
            errors=self.errors[:, None],
            mixture=self.mixture[:, None],
            confidence=self.confidence[:, None],
            scores=mapped(mix, self.class_map),
        )

    def solution(
        self,
        candidates: SetCandidates,
        errors: Float[Tensor, "s p b"],
        prior: Float[Tensor, "b y"],
    ) -> Solution:
        """The candidates with the smallest errors."""
        best = errors.argmin(1)  # [s b]
        tasks = torch.arange(best.shape[1], device=best.device)
        pairs = zip(candidates, best, strict=True)
        chosen = [(part.weights[i, tasks], part.offsets[i, tasks]) for part, i in pairs]
        weights, offsets = zip(*chosen, strict=True)
        return Solution(weights, torch.stack(offsets, dim=1), prior, *self)


def choose(
    errors: Sequence[Float[Tensor, "s p b"]],
    scatter: Sequence[Float[Tensor, " b"]],
    mixtures: Sequence[Float[Tensor, "b s"]],
    losses: Sequence[Float[Tensor, "e b"]],
    labels: Sequence[Float[Tensor, "b y"]],
    recent: Sequence[RecentRows | None],
) -> list[Choice]:
    """What suits each of several solutions best, by what is known of the rows it was found from.

    Args:
        errors: Squared errors of each set and penalty.
        scatter: Squared errors of the class shares.
        mixtures: Best mixtures of the sets.
        losses: Log-losses at each confidence.
        labels: Numbers of rows of each class.
        recent: The last rows, where class maps are fitted.
    """
    pairs = zip(errors, scatter, strict=True)
    relative = [(e.amin(1) / total.clamp(min=SMALLEST_VARIANCE)).T for e, total in pairs]
    confidences = at_once(best_confidence, losses, dim=1)
    num_classes = labels[0].shape[1]
    maps = [scaled(each, num_classes) for each in confidences]
    kept = [rows for rows in recent if rows is not None]
    if kept:
        present = torch.cat(list(labels)) > 0
        fitted = RecentRows.joined(kept).class_map(present, torch.cat(maps))
        maps = list(fitted.split(len(maps[0])))
    return list(map(Choice, relative, mixtures, confidences, map(alone, maps)))


def least_wrong(
    tried: Float[Tensor, "s p b n y"], errors: Float[Tensor, "s p b"]
) -> Float[Tensor, "b n s y"]:
    """Shares by the penalty with the smallest errors, for each set and task."""
    best = errors.argmin(1)  # [s b]
    sets, tasks = (torch.arange(n, device=best.device) for n in best.shape)
    return tried[sets[:, None], best, tasks].movedim(0, 2)


def mixed(
    mixture: Float[Tensor, "b s"], shares: Float[Tensor, "b n s y"]
) -> Float[Tensor, "b n y"]:
    """Shares that all sets predict together."""
    return (mixture[:, None, :, None] * shares).sum(2)


def running(start: Tensor, parts: Iterable[Tensor]) -> list[Tensor]:
    """Sums before the first part and after each."""
    return list(accumulate(parts, initial=start))


def at_once(
    function: Callable[[Tensor], Tensor], items: Sequence[Tensor], dim: int = 0
) -> list[Tensor]:
    """What a function makes of each item, computed for the tasks of all items together.

    Args:
        function: Of tasks, which it returns in the first dimension.
        items: Its arguments, for the same tasks each.
        dim: Their dimension of tasks.
    """
    if not items:
        return []
    return list(map(alone, function(torch.cat(list(items), dim)).split(items[0].shape[dim])))


def alone(part: Tensor) -> Tensor:
    """A copy that does not hold the memory of what it is a part of."""
    return part.clone(memory_format=torch.contiguous_format)
