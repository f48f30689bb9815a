"""Sums over rows, from which regressions on leaves beside fixed features are solved."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from tabicl_linear.ridge_inputs.solve import RidgeSums
from tabicl_linear.types import Float, Int, Tensor


class LeafRows(NamedTuple):
    """Rows as regressions take them.

    Attributes:
        leaves: Leaf of each tree.
        fixed: Fixed features, kind after kind.
        targets: Labels, one-hot.
    """

    leaves: Int[Tensor, "n t"]
    fixed: Float[Tensor, "n f"]
    targets: Float[Tensor, "n y"]


class LeafSums(NamedTuple):
    """Sums over rows; those of other rows add. Counts are whole, all else is float64.

    Attributes:
        rows: How many rows.
        together: How many rows any two leaves have in common.
        of_leaves: Sums of fixed features and labels of the rows in each leaf.
        gram: Sum of products of fixed features.
        cross: Sum of their products with labels.
        fixed: Sum of fixed features.
        labels: Sum of labels.
    """

    rows: int
    together: Int[Tensor, "l l"]
    of_leaves: Float[Tensor, "l f+y"]
    gram: Float[Tensor, "f f"]
    cross: Float[Tensor, "f y"]
    fixed: Float[Tensor, " f"]
    labels: Float[Tensor, " y"]

    @classmethod
    def of(cls, rows: LeafRows, num_leaves: int) -> "LeafSums":
        """Sums over these rows."""
        fixed, targets = rows.fixed.double(), rows.targets.double()
        beside = torch.cat([fixed, targets], dim=1)
        of_leaves = beside.new_zeros(num_leaves, beside.shape[1])
        for tree in rows.leaves.unbind(1):
            of_leaves.index_add_(0, tree, beside)
        return cls(
            len(targets),
            _together(rows.leaves, num_leaves),
            of_leaves,
            fixed.T @ fixed,
            fixed.T @ targets,
            fixed.sum(0),
            targets.sum(0),
        )

    @classmethod
    def over(cls, chunks: Iterable[LeafRows], num_leaves: int) -> "LeafSums":
        """Sums over the rows of all chunks, of which there must be one."""
        sums: LeafSums | None = None
        for rows in chunks:
            more = cls.of(rows, num_leaves)
            sums = more if sums is None else sums.plus(more)
        assert sums is not None, "sums over no rows"
        return sums

    def plus(self, other: "LeafSums") -> "LeafSums":
        """Sums over the rows of both."""
        return LeafSums(
            self.rows + other.rows,
            self.together + other.together,
            self.of_leaves + other.of_leaves,
            self.gram + other.gram,
            self.cross + other.cross,
            self.fixed + other.fixed,
            self.labels + other.labels,
        )

    def ridge_sums(self) -> RidgeSums:
        """The same with leaves and fixed features side by side."""
        num_fixed, num_leaves = len(self.gram), len(self.together)
        of_fixed, of_labels = self.of_leaves.split([num_fixed, len(self.labels)], dim=1)
        gram = self.gram.new_empty(2 * [num_leaves + num_fixed])
        gram[:num_leaves, :num_leaves] = self.together
        gram[:num_leaves, num_leaves:] = of_fixed
        gram[num_leaves:, :num_leaves] = of_fixed.T
        gram[num_leaves:, num_leaves:] = self.gram
        counts = self.together.diagonal().double()
        return RidgeSums(
            self.rows,
            torch.cat([counts, self.fixed])[None],
            gram[None],
            torch.cat([of_labels, self.cross])[None],
            self.labels[None],
        )


def _together(leaves: Int[Tensor, "n t"], num_leaves: int) -> Int[Tensor, "l l"]:
    """How many rows any two leaves have in common, int32."""
    n, t = leaves.shape
    places = np.arange(0, n * t + 1, t)
    ones = np.ones(n * t, dtype=np.int32)
    table = csr_array((ones, leaves.cpu().numpy().ravel(), places), shape=(n, num_leaves))
    return torch.from_numpy((table.T @ table).toarray()).to(leaves.device)
