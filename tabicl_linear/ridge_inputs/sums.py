"""Sums over the rows of a context, from which regressions are solved."""

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

import torch

from tabicl_linear.types import Float, Tensor


class RidgeSums(NamedTuple):
    """Sums over the rows of a context; the sums of two contexts can be added.

    A row has features f and a one-hot label r.

    Attributes:
        rows: Number of rows.
        features: Sum of f.
        gram: Sum of f f'.
        cross: Sum of f r'.
        labels: Sum of r.
    """

    rows: int
    features: Float[Tensor, "b f"]
    gram: Float[Tensor, "b f f"]
    cross: Float[Tensor, "b f y"]
    labels: Float[Tensor, "b y"]

    @classmethod
    def of(cls, features: Float[Tensor, "b n f"], targets: Float[Tensor, "b n y"]) -> "RidgeSums":
        """Sums over these rows, in float64 whatever the dtype of `features`.

        Products in float32 have an error of about 1e-7 per row: with equal or constant features,
        the errors of tens of thousands of rows outgrow the penalty, and the matrix would not be
        positive definite.
        """
        features, targets = features.double(), targets.double()
        return cls(
            features.shape[1],
            features.sum(1),
            _symmetric_products(features),
            features.transpose(1, 2) @ targets,
            targets.sum(1),
        )

    def plus(self, other: "RidgeSums") -> "RidgeSums":
        """Sums over the rows of both."""
        return RidgeSums(*map(add, self, other))


class Moments(NamedTuple):
    """Centred sums over the rows of contexts, which may differ in length.

    Attributes:
        rows: Number of rows of each context.
        mean: Mean of each feature.
        shares: Class shares.
        gram: Sum of (f - mean) (f - mean)'.
        cross: Sum of (f - mean) (r - shares)'.
    """

    rows: Float[Tensor, "b 1"]
    mean: Float[Tensor, "b f"]
    shares: Float[Tensor, "b y"]
    gram: Float[Tensor, "b f f"]
    cross: Float[Tensor, "b f y"]

    @classmethod
    def of(cls, sums: Sequence[RidgeSums]) -> "Moments":
        """Moments of several contexts of the same tasks, the tasks of the first context first."""
        _, *parts = zip(*sums, strict=True)
        return cls.centred_(*(torch.cat(part) for part in parts))

    @classmethod
    def centred_(
        cls,
        features: Float[Tensor, "b f"],
        gram: Float[Tensor, "b f f"],
        cross: Float[Tensor, "b f y"],
        labels: Float[Tensor, "b y"],
    ) -> "Moments":
        """Moments from sums (see `RidgeSums`), computed in the memory of `gram` and `cross`.

        With thousands of features, a copy would take a tenth of the time of a Cholesky factor.
        """
        rows = labels.sum(-1, keepdim=True)
        mean, shares = features / rows, labels / rows
        column = (rows * mean).unsqueeze(-1)
        gram.addcmul_(column, mean[:, None], value=-1)
        cross.addcmul_(column, shares[:, None], value=-1)
        return cls(rows, mean, shares, gram, cross)


def _symmetric_products(features: Float[Tensor, "b n f"]) -> Float[Tensor, "b f f"]:
    """F'F; the product of the second half of the columns with the first is copied by symmetry."""
    ft, middle = features.transpose(1, 2), features.shape[2] // 2
    products = features.new_empty(len(features), features.shape[2], features.shape[2])
    products[:, :middle] = ft[:, :middle] @ features
    products[:, middle:, :middle] = products[:, :middle, middle:].transpose(1, 2)
    products[:, middle:, middle:] = ft[:, middle:] @ features[..., middle:]
    return products
