"""Trees as arrays: which leaf of each tree a row falls into."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.tree_growth import leaves_of_rows
from tabicl_linear.types import Float, Int, Tensor

MANY_NUMBERS = 20
"""Rows of more numbers are added to sums of leaves as a whole, shorter ones number by number."""


class Trees(NamedTuple):
    """Binary trees on the columns of a table, with the nodes of all trees side by side.

    A node asks whether a row's value in some column is at most its threshold. The node after a leaf
    is the leaf itself, so that all rows can take as many steps as the deepest tree has.

    Attributes:
        columns: Column that each node asks about.
        thresholds: What the value is compared with: midway between two values of training rows.
        following: The next node after the answer no, and after yes.
        leaves: Number of each leaf, counted through all trees; meaningless for other nodes.
        roots: First node of each tree.
        depth: Steps from a root to the furthest leaf.
        num_leaves: Leaves of all trees.
    """

    columns: Int[Tensor, " q"]
    thresholds: Float[Tensor, " q"]
    following: Int[Tensor, "q 2"]
    leaves: Int[Tensor, " q"]
    roots: Int[Tensor, " t"]
    depth: int
    num_leaves: int

    def of_rows(self, z: Float[Tensor, "n m"]) -> Int[Tensor, "n t"]:
        """The leaf of each tree that each row falls into; rows are standardised, float32."""
        nodes = self.columns, self.thresholds, self.following, self.leaves
        return chosen(leaves_of_rows)(z, *nodes, self.roots, depth=self.depth)


def side_by_side(parts: Sequence[Trees]) -> Trees:
    """Several groups of trees as one; nodes and leaves are numbered on from group to group."""
    nodes = [0, *accumulate(len(part.columns) for part in parts)]
    leaves = [0, *accumulate(part.num_leaves for part in parts)]
    return Trees(
        columns=torch.cat([part.columns for part in parts]),
        thresholds=torch.cat([part.thresholds for part in parts]),
        following=torch.cat([part.following + at for part, at in zip(parts, nodes, strict=False)]),
        leaves=torch.cat([part.leaves + at for part, at in zip(parts, leaves, strict=False)]),
        roots=torch.cat([part.roots + at for part, at in zip(parts, nodes, strict=False)]),
        depth=max(part.depth for part in parts),
        num_leaves=leaves[-1],
    )
