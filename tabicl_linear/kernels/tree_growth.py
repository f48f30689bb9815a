"""Trees on columns of small whole numbers, and where rows fall in grown ones, in plain PyTorch."""

from typing import NamedTuple

import torch

from tabicl_linear.types import Bool, Float, Int, Tensor, UInt8

NUMBERS = 256
"""A cell is one of so many numbers, from 0."""
ROWS_AT_ONCE = 256
"""Whose way through all trees is followed together, so that their nodes fit into a cache."""


class Questions(NamedTuple):
    """A binary tree whose nodes follow each other as in a heap: after i come 2 i + 1 and 2 i + 2.

    Attributes:
        columns: What an inner node asks about; -1 where it is a leaf.
        cuts: The largest number of its rows before the cut, and the smallest after it.
        nodes: Where each row that the tree was grown on ends.
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
        targets: What to predict of each row, float64.
        allowed: Columns that each inner node may ask about. As many nodes as a tree of some depth
            has.
        fewest: Rows of a leaf.
        least: By how much a question has to lower the sum of squares.
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
        targets: Of these rows.
        place: Node of each row.
        allowed: Columns of each node.
        fewest: Rows of a leaf.
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
    """Squared sums of the targets over the number of rows, which comes last."""
    return sums[..., :-1].square().sum(-1) / sums[..., -1].clamp(min=1)


def shared_leaves(leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n n"]:
    """In how many trees two rows share a leaf, float32."""
    total = torch.zeros(2 * leaves.shape[:1], dtype=torch.float32, device=leaves.device)
    for tree in leaves.T:
        total += tree.unsqueeze(1) == tree
    return total


def count_pairs_(counts: Int[Tensor, "l l"], leaves: Int[Tensor, "n t"]) -> None:
    """Add how many rows any leaf has in common with one of the same or a later tree, in place.

    Args:
        counts: Of all leaves, int32. Leaves of a tree have higher numbers than those of earlier
            trees, so that only the upper half changes.
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
        sums: Of the rows of each leaf, float64.
        leaves: The leaf of each tree that rows fall into.
        rows: What is summed, float64.
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
        thresholds: What it compares with, float32.
        following: Nodes after the answers no and yes to whether a cell is at most that; a leaf is
            followed by itself.
        leaves: Number of each leaf.
        roots: First node of each tree.
        depth: Steps from a root to the furthest leaf.
    """
    # Picked one by one by `index_select`: indexing takes three times as long.
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
