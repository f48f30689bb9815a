"""Sets of features: which kinds a regression takes, and what standard deviation it gives each."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from tabicl_linear.embedding.constants import constants
from tabicl_linear.types import Float, Tensor

SMALLEST_VARIANCE = 1e-12
"""Smallest variance of all features of a kind together; less is rounding."""


class Part(NamedTuple):
    """One kind of features in a set.

    Attributes:
        place: Where the features of the kind stand among all features.
        deviation: Standard deviation that they are scaled to, together.
    """

    place: slice
    deviation: float

    @property
    def size(self) -> int:
        """Number of features."""
        return int(self.place.stop - self.place.start)


FeatureSet = Sequence[Part]
"""The features of one regression."""


def of_set(features: Float[Tensor, "b *n f"], feature_set: FeatureSet) -> Float[Tensor, "b *n s"]:
    """The features of a set among all features; a view if they stand side by side.

    Slices select them, since an index would have to be copied to the device first.
    """
    places = [part.place for part in feature_set]
    if all(one.stop == other.start for one, other in pairwise(places)):
        return features[..., places[0].start : places[-1].stop]
    return torch.cat([features[..., place] for place in places], dim=-1)


def scales(variance: Float[Tensor, "b f"], feature_set: FeatureSet) -> Float[Tensor, "b f"]:
    """Factors that scale each kind of features to its standard deviation; 0 if none varies."""
    parts = variance.clamp(min=0).split([part.size for part in feature_set], dim=-1)
    pairs = zip(parts, feature_set, strict=True)
    factors = [
        scale_of_kind(each.sum(-1, keepdim=True), part).expand_as(each) for each, part in pairs
    ]
    return torch.cat(factors, dim=-1)


def scale_of_kind(variance: Float[Tensor, "b 1"], part: Part) -> Float[Tensor, "b 1"]:
    """The factor that scales a kind to its deviation; `variance` is summed over its features."""
    return torch.where(variance > SMALLEST_VARIANCE, part.deviation * variance.rsqrt(), 0.0)


def ridge_terms(
    penalties: Sequence[float], feature_set: FeatureSet, like: Tensor
) -> Float[Tensor, "p 1"]:
    """The term c of every penalty: the penalty times the set's variance of a row's features."""
    variance = sum(part.deviation**2 for part in feature_set)
    return constants(tuple(penalties), like).unsqueeze(-1) * variance
