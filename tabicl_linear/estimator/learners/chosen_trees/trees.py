"""Trees as arrays: which leaf of each tree a row falls into."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from tabicl_linear.types import Float, Int, Tensor

ROWS_AT_ONCE = 256
"""Whose way through all trees is followed together."""


class Trees(NamedTuple):
    """Binary trees on the columns of a table, their nodes side by side.

    A node asks whether a value of a row is at most its threshold. After a leaf comes the leaf
    itself, so that all rows can take as many steps as the deepest tree has.

    Attributes:
        columns: Column that each node asks about.
        thresholds: What it compares with: midway between two values that training rows have.
        following: Nodes after the answers no and yes.
        leaves: Number of each leaf, counted through all trees; without meaning for other nodes.
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
        """The leaf of each tree that standardised rows, float32, fall into."""
        return torch.cat([self._of_some(rows) for rows in z.split(ROWS_AT_ONCE)])

    def _of_some(self, z: Float[Tensor, "n m"]) -> Int[Tensor, "n t"]:
        """Of rows whose nodes fit into a cache."""
        # Picked one by one by `index_select`: indexing takes three times as long.
        rows, columns = z.shape
        following, cells = self.following.flatten(), z.flatten()
        first = torch.arange(rows, dtype=torch.int32, device=z.device) * columns
        first = first.repeat_interleave(len(self.roots))
        node = self.roots.repeat(rows)
        for _ in range(self.depth):
            cell = self.columns.index_select(0, node).add_(first)
            no_or_yes = cells.index_select(0, cell) <= self.thresholds.index_select(0, node)
            node = following.index_select(0, node.mul_(2).add_(no_or_yes))
        return self.leaves.index_select(0, node).view(rows, len(self.roots))


def side_by_side(parts: Sequence[Trees]) -> Trees:
    """Several as one: nodes and leaves of each are numbered after those of the ones before."""
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
