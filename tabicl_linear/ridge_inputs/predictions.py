"""Predictions of ridge regressions, and the solution that a fitted context keeps of them."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch

from tabicl_linear.embedding.constants import constants
from tabicl_linear.ridge_inputs.class_map import mapped
from tabicl_linear.ridge_inputs.feature_sets import FeatureSet, of_set
from tabicl_linear.types import Bool, Float, Int, Tensor

CONFIDENCES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""Factors between predicted shares and logits to choose from."""
ABSENT_LOGIT = -30.0
"""Logit of classes that the context does not have."""
TIE = 1e-9
"""Squared errors that differ by less, absolutely and relatively, differ by rounding."""


class RidgePredictions(NamedTuple):
    """What is known about rows before the network has seen them.

    Attributes:
        shares: Predicted shares of the classes, for each set of features.
        prior: Shares of the classes among the context rows.
        errors: Mean squared error of each set on left-out rows, in units of that of the class
            shares.
        mixture: Weight of each set in the mixture of all; the weights sum to one.
        confidence: Factor that makes logits of the mixture, if no class map does.
        scores: Logits made of the mixture, including those of absent classes.
    """

    shares: Float[Tensor, "b n s y"]
    prior: Float[Tensor, "b #n y"]
    errors: Float[Tensor, "b #n s"]
    mixture: Float[Tensor, "b #n s"]
    confidence: Float[Tensor, "b #n 1"]
    scores: Float[Tensor, "b n y"]

    @classmethod
    def joined(cls, parts: Sequence["RidgePredictions"]) -> "RidgePredictions":
        """Predictions of the rows of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat(p, dim=1) for p in zip(*(q._each() for q in parts), strict=True)))

    def rows(self, rows: slice | Int[Tensor, " i"]) -> "RidgePredictions":
        """Predictions of some of the rows."""
        return RidgePredictions(*(part[:, rows] for part in self._each()))

    def _each(self) -> list[Tensor]:
        """All fields, expanded to have a value for each row."""
        count = self.shares.shape[1]
        return [self.shares, *(part.expand(-1, count, -1) for part in self[1:])]

    def to(self, dtype: torch.dtype) -> "RidgePredictions":
        """The same in another dtype."""
        return RidgePredictions(*(part.to(dtype) for part in self))

    @classmethod
    def of_shares(cls, prior: Float[Tensor, "b n y"], num_sets: int) -> "RidgePredictions":
        """Predictions by class shares alone."""
        sets = prior.new_ones(*prior.shape[:2], num_sets)
        return cls(
            prior.unsqueeze(2).expand(-1, -1, num_sets, -1),
            prior,
            errors=sets,
            mixture=sets / num_sets,
            confidence=torch.full_like(sets[..., :1], CONFIDENCES[0]),
            scores=CONFIDENCES[0] * prior,
        )

    def without_regressions(self) -> "RidgePredictions":
        """Predictions of the same rows by the class shares of the context alone."""
        prior = self.prior.expand(-1, self.shares.shape[1], -1)
        return RidgePredictions.of_shares(prior, self.shares.shape[2])

    def replaced(self, tasks: Int[Tensor, " t"], others: "RidgePredictions") -> "RidgePredictions":
        """The same, with the predictions of some tasks (their indices) replaced by `others`."""
        pairs = zip(self._each(), others._each(), strict=True)
        return RidgePredictions(*(a.index_copy(0, tasks, b) for a, b in pairs))

    def mixed(self) -> Float[Tensor, "b n y"]:
        """Class shares that all sets predict together."""
        return (self.mixture.unsqueeze(-1) * self.shares).sum(2)

    def logits(self) -> Float[Tensor, "b n y"]:
        """Logits of the closed form alone; absent classes have `ABSENT_LOGIT`."""
        return self.scores.masked_fill(self.prior == 0, ABSENT_LOGIT)


class Solution(NamedTuple):
    """Predicts unlabelled rows, linearly in the features.

    Attributes:
        weights: Weights of the features of each set.
        offsets: Offset of each set.
        prior: See `RidgePredictions`, also for the next three.
        errors: Relative error of each set.
        mixture: Weight of each set.
        confidence: Factor of each task.
        class_map: Linear map from the mixture's shares to logits.
    """

    weights: tuple[Float[Tensor, "b _f y"], ...]
    offsets: Float[Tensor, "b s y"]
    prior: Float[Tensor, "b y"]
    errors: Float[Tensor, "b s"]
    mixture: Float[Tensor, "b s"]
    confidence: Float[Tensor, "b 1"]
    class_map: Float[Tensor, "b y z"]

    def predict(
        self, features: Float[Tensor, "b n f"], sets: Sequence[FeatureSet]
    ) -> RidgePredictions:
        """Predictions of unlabelled rows.

        Args:
            features: All features of the rows.
            sets: The place of each set's features among them.
        """
        return self.about(self.shares(features, sets))

    def shares(
        self, features: Float[Tensor, "b n f"], sets: Sequence[FeatureSet]
    ) -> Float[Tensor, "b n s y"]:
        """Shares that each set predicts for rows, from all their features."""
        features = features.to(self.offsets.dtype)  # once, and not for each set
        first, *others = ([part.place for part in feature_set] for feature_set in sets)
        if all(places == first for places in others):  # one product for all sets
            weights = torch.cat(self.weights, dim=-1)
            sums = of_set(features, sets[0]) @ weights
            return sums.unflatten(2, (len(sets), -1)) + self.offsets[:, None]
        parts = zip(self.weights, self.offsets.unbind(1), sets, strict=True)
        shares = [offset_shares(of_set(features, part), *linear) for *linear, part in parts]
        return torch.stack(shares, dim=2)

    def about(self, shares: Float[Tensor, "b n s y"]) -> RidgePredictions:
        """Predictions from the shares of each set, with all that is known about them."""
        mixed = torch.einsum("bs,bnsy->bny", self.mixture, shares)
        return RidgePredictions(
            shares,
            prior=self.prior[:, None],
            errors=self.errors[:, None],
            mixture=self.mixture[:, None],
            confidence=self.confidence[:, None],
            scores=mapped(mixed, self.class_map),
        )


def offset_shares(
    features: Float[Tensor, "b n f"],
    weights: Float[Tensor, "*p b f y"],
    offsets: Float[Tensor, "*p b y"],
) -> Float[Tensor, "*p b n y"]:
    """Shares that linear functions of the features predict."""
    return features.to(weights.dtype) @ weights + offsets.unsqueeze(-2)


def best_mixture(products: Float[Tensor, "b s s"]) -> Float[Tensor, "b s"]:
    """Weights of the sets, quarters with a sum of one, that give the least squared error together.

    If several are equally good up to rounding, as all are before anything has been predicted, the
    most even one is taken, so that the order of summation does not decide.

    Args:
        products: Products of the errors of any two sets, summed over left-out rows and classes.
    """
    count = products.shape[1]
    every = [parts for parts in product(range(4, -1, -1), repeat=count) if sum(parts) == 4]
    every.sort(key=lambda parts: sum(part**2 for part in parts))
    quarters = tuple(part / 4 for parts in every for part in parts)
    mixtures = constants(quarters, products).view(-1, count)
    losses = torch.einsum("ms,bst,mt->bm", mixtures, products, mixtures)
    enough = losses.amin(1, keepdim=True) * (1 + TIE) + TIE
    return mixtures[(losses <= enough).int().argmax(1)]


def confidence_losses(
    shares: Float[Tensor, "b n y"], targets: Float[Tensor, "b n y"], present: Bool[Tensor, "b #n y"]
) -> Float[Tensor, "e b"]:
    """Sum over rows of the log-loss at each of `CONFIDENCES`.

    Args:
        shares: Predictions of rows that were left out.
        targets: Their one-hot labels; zero for rows that do not count.
        present: Classes that can be predicted.
    """
    confidences = constants(CONFIDENCES, shares).view(-1, 1, 1, 1)
    logits = (confidences * shares).masked_fill(~present, ABSENT_LOGIT)
    # This takes half the time of `log_softmax`, which is slow for few classes in float64.
    totals = logits.logsumexp(-1) * targets.sum(-1)
    return totals.sum(-1) - (logits * targets).sum((-1, -2))


def best_confidence(losses: Float[Tensor, "e *b"]) -> Float[Tensor, "*b 1"]:
    """The confidence with the least loss, for each task."""
    return constants(CONFIDENCES, losses)[losses.argmin(0)].unsqueeze(-1)
