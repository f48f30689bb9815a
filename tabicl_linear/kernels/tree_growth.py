"""Grows trees on columns of small whole numbers, and finds the leaves of rows, in plain PyTorch."""

from typing import NamedTuple

import torch

from tabicl_linear.types import Bool, Float, Int, Tensor, UInt8

NUMBERS = 256
"""Cells hold whole numbers from 0 to below this."""
ROWS_AT_ONCE = 256
"""Rows that go through all trees together: few enough for their nodes to fit into a cache."""


class Questions(NamedTuple):
    """A binary tree, with nodes numbered as in a heap: the children of i are 2 i + 1 and 2 i + 2.

    Attributes:
        columns: Column that each inner node asks about; -1 if the node is a leaf.
        cuts: For each inner node, the largest cell of its rows before the cut and the smallest
            after it.
        nodes: Leaf of each row that the tree was grown on.
    """

    columns: Int[Tensor, " q"]
    cuts: Int[Tensor, "q 2"]
    nodes: Int[Tensor, " n"]


def grown_tree(
    numbers: UInt8[Tensor, "m n"],
    targets: Float[Tensor, "n k"],
    allowed: Bool[Tensor, "q m"],
    *,
    fewest: int,
    least: float,
) -> Questions:
    """A regression tree of several targets, by least squares (Breiman et al., 1984).

    Args:
        numbers: Cells of each column, uint8.
        targets: Targets of each row, float64.
        allowed: Columns that each inner node may ask about. The number of nodes sets the depth: it
            is that of the inner nodes of a full tree.
        fewest: Fewest rows of a leaf.
        least: A question must lower the sum of squares by more than this.
    """
    columns = torch.full((len(allowed),), -1, dtype=torch.int32)
    cuts = torch.zeros(len(allowed), 2, dtype=torch.int32)
    nodes = torch.zeros(numbers.shape[1], dtype=torch.int32)
    first = 0
    while first < len(allowed):
        level = slice(first, 2 * first + 1)
        inside = nodes >= first
        gains, columns[level], cuts[level] = _level(
            numbers[:, inside],
            targets[inside],
            nodes[inside].long() - first,
            allowed[level],
            fewest,
        )
        columns[level][gains <= least] = -1
        column_of = columns[nodes.clamp(max=len(allowed) - 1).long()]
        rows = (inside & (column_of >= 0)).nonzero().squeeze(1)
        node = nodes[rows].long()
        is_after = numbers[column_of[rows].long(), rows] > cuts[node, 0]
        nodes[rows] = (2 * node + 1 + is_after).int()
        first = level.stop
    return Questions(columns, cuts, nodes)


def _level(
    numbers: UInt8[Tensor, "m n"],
    targets: Float[Tensor, "n k"],
    place: Int[Tensor, " n"],
    allowed: Bool[Tensor, "q m"],
    fewest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best question of each node of one level: its gain, its column and its cut.

    Args:
        numbers: Cells of the rows in these nodes.
        targets: Targets of these rows.
        place: Node of each row, from 0 within the level.
        allowed: Columns that each node may ask about.
        fewest: Fewest rows of a leaf.
    """
    count = len(allowed)
    summands = torch.cat([targets, torch.ones_like(targets[:, :1])], dim=1)
    best = targets.new_full((count,), -torch.inf)
    columns = torch.full((count,), -1, dtype=torch.int32)
    cuts = torch.zeros(count, 2, dtype=torch.int32)
    every = torch.arange(NUMBERS)
    for column, cells in enumerate(numbers.long()):
        sums = summands.new_zeros(count * NUMBERS, summands.shape[1])
        sums = sums.index_add_(0, place * NUMBERS + cells, summands).view(count, NUMBERS, -1)
        left = sums.cumsum(1)
        right = left[:, -1:] - left
        gain = _squares(left) + _squares(right) - _squares(left[:, -1:])
        rows_left, rows_right = left[..., -1], right[..., -1]
        may_cut = (rows_left >= fewest) & (rows_right >= fewest) & (sums[..., -1] > 0)
        gain, cut = gain.masked_fill(~(may_cut & allowed[:, column, None]), -torch.inf).max(1)
        is_better = gain > best
        after = (sums[..., -1] > 0) & (every > cut[:, None])
        pair = torch.stack([cut, after.int().argmax(1)], dim=1).int()
        best = torch.where(is_better, gain, best)
        columns[is_better] = column
        cuts[is_better] = pair[is_better]
    return best, columns, cuts


def _squares(sums: Tensor) -> Tensor:
    """|sum of targets|^2 / number of rows, which is the last entry of `sums`."""
    return sums[..., :-1].square().sum(-1) / sums[..., -1].clamp(min=1)


def shared_leaves(leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n n"]:
    """The number of trees in which two rows share a leaf, float32."""
    total = torch.zeros(2 * leaves.shape[:1], dtype=torch.float32, device=leaves.device)
    for tree in leaves.T:
        total += tree.unsqueeze(1) == tree
    return total


def count_pairs_(counts: Int[Tensor, "l l"], leaves: Int[Tensor, "n t"]) -> None:
    """Add the number of rows that each pair of leaves has in common, in place.

    Args:
        counts: Counts for all pairs of leaves, int32. Leaves of a tree have higher numbers than
            those of earlier trees, and only pairs in that order are counted: the upper half.
        leaves: The leaf of each tree that rows fall into.
    """
    flat, one, leaves = counts.view(-1), counts.new_ones(1), leaves.long()
    for number, tree in enumerate(leaves.unbind(1)):
        pairs = (tree.unsqueeze(1) * len(counts) + leaves[:, number:]).flatten()
        flat.index_add_(0, pairs, one.expand(len(pairs)))


def add_to_leaves_(
    sums: Float[Tensor, "l f"], leaves: Int[Tensor, "n t"], rows: Float[Tensor, "n f"]
) -> None:
    """Add rows to the sums of the leaves that they fall into, in place.

    Args:
        sums: Sums of the rows of each leaf, float64.
        leaves: The leaf of each tree that rows fall into.
        rows: Rows to add, float64.
    """
    for tree in leaves.unbind(1):
        sums.index_add_(0, tree, rows)


def leaves_of_rows(
    rows: Float[Tensor, "n m"],
    columns: Int[Tensor, " q"],
    thresholds: Float[Tensor, " q"],
    following: Int[Tensor, "q 2"],
    leaves: Int[Tensor, " q"],
    roots: Int[Tensor, " t"],
    *,
    depth: int,
) -> Int[Tensor, "n t"]:
    """The leaf of each tree that rows fall into.

    Args:
        rows: Cells, float32.
        columns: Column that each node asks about.
        thresholds: Threshold of each node, float32.
        following: The next nodes after the answers no and yes to whether the cell is at most the
            threshold; a leaf is followed by itself.
        leaves: Number of each leaf.
        roots: First node of each tree.
        depth: Steps from a root to the furthest leaf.
    """
    # `index_select` on flat tensors, as indexing takes three times as long.
    flat, parts = following.flatten(), list[Tensor]()
    for part in rows.split(ROWS_AT_ONCE):
        cells = part.flatten()
        first = torch.arange(len(part), dtype=torch.int32, device=rows.device) * rows.shape[1]
        first = first.repeat_interleave(len(roots))
        node = roots.repeat(len(part))
        for _ in range(depth):
            cell = columns.index_select(0, node).add_(first)
            no_or_yes = cells.index_select(0, cell) <= thresholds.index_select(0, node)
            node = flat.index_select(0, node.mul_(2).add_(no_or_yes))
        parts.append(leaves.index_select(0, node).view(len(part), len(roots)))
    return torch.cat(parts)
