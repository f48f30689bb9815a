"""Stretches of rows from one solution to the next, how solutions did on them, and what is best.

Whatever does not depend on how rows were cut into pieces is computed for all solutions at once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.class_map import mapped, scaled
from tabicl_linear.ridge_inputs.feature_sets import SMALLEST_VARIANCE, FeatureSet, of_set
from tabicl_linear.ridge_inputs.predictions import (
    RidgePredictions,
    Solution,
    best_confidence,
    confidence_losses,
    offset_shares,
)
from tabicl_linear.ridge_inputs.recent_rows import RecentRows
from tabicl_linear.ridge_inputs.solve import chosen_penalties
from tabicl_linear.types import Bool, Float, Tensor


class Candidates(NamedTuple):
    """The solutions of one set with each penalty, as linear functions of the features."""

    weights: Float[Tensor, "p b f y"]
    offsets: Float[Tensor, "p b y"]


SetCandidates = tuple[Candidates, ...]
"""The candidates of each set."""


class Stretch(NamedTuple):
    """Rows that are predicted by the same solution.

    Attributes:
        features: Features of the rows.
        targets: Their one-hot labels.
        prior: Class shares of all rows before each row.
    """

    features: Float[Tensor, "b n f"]
    targets: Float[Tensor, "b n y"]
    prior: Float[Tensor, "b n y"]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.targets.shape[1]

    @property
    def present(self) -> Bool[Tensor, "b n y"]:
        """Which classes occur among the rows before each row."""
        return self.prior > 0

    @property
    def predictable_targets(self) -> Float[Tensor, "b n y"]:
        """One-hot labels; zero for rows that are the first of their class."""
        return self.targets * self.present

    def shares(
        self, candidates: SetCandidates, sets: Sequence[FeatureSet]
    ) -> Float[Tensor, "s p b n y"]:
        """Class shares that every candidate predicts for the rows."""
        features = self.features.double()
        shares = [
            offset_shares(of_set(features, feature_set), linear.weights, linear.offsets)
            for linear, feature_set in zip(candidates, sets, strict=True)
        ]
        return torch.stack(shares)

    def squared_errors(self, shares: Float[Tensor, "*s b n y"]) -> Float[Tensor, "*s b"]:
        """Squared errors of predicted shares, summed over rows and classes."""
        return (shares - self.targets).square().sum((-1, -2))

    def error_products(self, shares: Float[Tensor, "b n s y"]) -> Float[Tensor, "b s s"]:
        """Products of the errors of any two sets, summed over rows and classes."""
        residuals = shares - self.targets.unsqueeze(2)
        return torch.einsum("bnsy,bnty->bst", residuals, residuals)

    def losses(self, shares: Float[Tensor, "b n y"]) -> Float[Tensor, "e b"]:
        """Log-loss at each confidence, summed over rows whose classes can be predicted."""
        return confidence_losses(shares, self.predictable_targets, self.present)


class Trial(NamedTuple):
    """What a solution predicts for the stretch after it, and how solutions have done up to its end.

    Attributes:
        shares: Predictions with the penalty that had the least error before, for each set and task.
        errors: Squared error of each set and penalty.
        products: Sums of products of the errors of any two sets.
    """

    shares: Float[Tensor, "b n s y"]
    errors: Float[Tensor, "s p b"]
    products: Float[Tensor, "b s s"]


class Mix(NamedTuple):
    """What all sets together predict for a stretch, and how they have done up to its end.

    Attributes:
        shares: Predictions of the mixture.
        losses: Log-loss at each confidence.
        scatter: Squared error of the class shares.
        labels: Number of rows of each class.
        recent: The last rows, if a class map is fitted to them; else None.
    """

    shares: Float[Tensor, "b n y"]
    losses: Float[Tensor, "e b"]
    scatter: Float[Tensor, " b"]
    labels: Float[Tensor, "b y"]
    recent: RecentRows | None


class Choice(NamedTuple):
    """What suits the predictions of a solution best; see `RidgePredictions` and `Solution`."""

    errors: Float[Tensor, "b s"]
    mixture: Float[Tensor, "b s"]
    confidence: Float[Tensor, "b 1"]
    class_map: Float[Tensor, "b y z"]

    @classmethod
    def of(cls, solution: Solution) -> "Choice":
        """The choice that a solution holds."""
        return cls(solution.errors, solution.mixture, solution.confidence, solution.class_map)

    def predictions(
        self,
        rows: Stretch,
        shares: Float[Tensor, "b n s y"],
        mix: Float[Tensor, "b n y"],
    ) -> RidgePredictions:
        """Predictions from the shares of each set and their mixture `mix`, under this choice."""
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
        """The solution with the candidates that have the smallest errors, under this choice."""
        best = errors.argmin(1)  # [s b]
        tasks = torch.arange(best.shape[1], device=best.device)
        pairs = list(zip(candidates, best, strict=True))
        weights = tuple(linear.weights[penalty, tasks] for linear, penalty in pairs)
        offsets = [linear.offsets[penalty, tasks] for linear, penalty in pairs]
        return Solution(weights, torch.stack(offsets, dim=1), prior, *self)


def choose(
    trials: Sequence[Trial], mixtures: Sequence[Float[Tensor, "b s"]], mixes: Sequence[Mix]
) -> list[Choice]:
    """What suits each of several solutions best, judged by the rows that it was solved from.

    Args:
        trials: For each solution, the trial on the stretch that ends with it.
        mixtures: For each solution, the best mixture of the sets.
        mixes: For each solution, the mix of the stretch that ends with it.
    """
    relative = [
        (trial.errors.amin(1) / mix.scatter.clamp(min=SMALLEST_VARIANCE)).T  # [b s]
        for trial, mix in zip(trials, mixes, strict=True)
    ]
    confidences = at_once(best_confidence, [mix.losses for mix in mixes], dim=1)  # [b 1] each
    num_classes = mixes[0].labels.shape[1]
    maps = [scaled(confidence, num_classes) for confidence in confidences]  # [b y z] each
    recent = [mix.recent for mix in mixes if mix.recent is not None]
    if recent:
        present = torch.cat([mix.labels for mix in mixes]) > 0
        class_maps = RecentRows.joined(recent).class_map(present, torch.cat(maps))
        maps = list(class_maps.split(len(maps[0])))
    return list(map(Choice, relative, mixtures, confidences, map(alone, maps)))


def least_wrong(
    shares: Float[Tensor, "s p b n y"], errors: Float[Tensor, "s p b"]
) -> Float[Tensor, "b n s y"]:
    """The shares that the penalty with the smallest error predicts, for each set and task."""
    return chosen_penalties(shares, errors.argmin(1)).movedim(0, 2)


def mixed(
    mixture: Float[Tensor, "b s"], shares: Float[Tensor, "b n s y"]
) -> Float[Tensor, "b n y"]:
    """Shares that all sets predict together, weighted by the mixture."""
    return (mixture[:, None, :, None] * shares).sum(2)


def at_once(
    function: Callable[[Tensor], Tensor], items: Sequence[Tensor], dim: int = 0
) -> list[Tensor]:
    """Apply a function to each item, computing it for the tasks of all items together.

    Args:
        function: Takes a tensor of tasks; its result has the tasks in the first dimension.
        items: Arguments of the function; all have the same tasks.
        dim: Their dimension of tasks.
    """
    if not items:
        return []
    return list(map(alone, function(torch.cat(list(items), dim)).split(items[0].shape[dim])))


def alone(part: Tensor) -> Tensor:
    """A copy of a part of a tensor, which does not keep the memory of the whole."""
    return part.clone(memory_format=torch.contiguous_format)
