"""Growing trees, leaves of rows, and counts and sums over leaves in C++ (`csrc/trees.cpp`)."""

import ctypes

import torch
import torch.nn.functional as F

from tabicl_linear.backends.cpp.loader import fields, pointer, run
from tabicl_linear.kernels import tree_growth
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.kernels.tree_growth import Questions
from tabicl_linear.types import Bool, Float, Int, Tensor, UInt8

WORD = 64
MOST_TREES = 255
"""Most trees for which shared leaves are counted in C++, where counts are bytes."""


class _Tree(ctypes.Structure):
    _fields_ = fields(
        "numbers targets allowed columns cuts nodes",
        "rows num_columns outputs depth fewest",
        doubles="least",
    )


class _Shared(ctypes.Structure):
    _fields_ = fields("leaves out", "trees rows padded")


class _Pairs(ctypes.Structure):
    _fields_ = fields("leaves first last counts", "trees rows num_leaves")


class _LeafSums(ctypes.Structure):
    _fields_ = fields("leaves rows sums", "count trees width")


class _Ways(ctypes.Structure):
    _fields_ = fields(
        "rows columns thresholds following leaves roots out", "count num_columns trees depth"
    )


def grown_tree(
    numbers: UInt8[Tensor, "m n"],
    targets: Float[Tensor, "n k"],
    allowed: Bool[Tensor, "q m"],
    *,
    fewest: int,
    least: float,
) -> Questions:
    """`tree_growth.grown_tree`."""
    numbers, targets, allowed = (x.contiguous() for x in (numbers, targets, allowed))
    inner, num_columns = allowed.shape
    rows, outputs = targets.shape
    questions = Questions(
        torch.empty(inner, dtype=torch.int32),
        torch.empty(inner, 2, dtype=torch.int32),
        torch.empty(rows, dtype=torch.int32),
    )
    problem = _Tree(
        *map(pointer, (numbers, targets, allowed, *questions)),
        *(rows, num_columns, outputs, (inner + 1).bit_length() - 1, fewest, least),
    )
    run("tree", problem, failure="There is no memory left to grow a tree.")
    return questions


def shared_leaves(leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n n"]:
    """`tree_growth.shared_leaves`."""
    rows, count = leaves.shape
    if leaves.device.type != "cpu" or count > MOST_TREES:
        return tree_growth.shared_leaves(leaves)
    # Leaves of a tree have consecutive numbers and are fewer than 256, so bytes tell them apart.
    small = F.pad(leaves.T.to(torch.uint8), (0, -rows % WORD)).contiguous()
    # Not the default dtype and device, which may differ: the library writes float32 to an address.
    out = torch.empty(rows, rows, dtype=torch.float32, device="cpu")
    problem = _Shared(*map(pointer, (small, out)), *(count, rows, small.shape[1]))
    run("shared", problem, torch.get_num_threads())
    return out


def count_pairs_(counts: Int[Tensor, "l l"], leaves: Int[Tensor, "n t"]) -> None:
    """`tree_growth.count_pairs_`."""
    rows, trees = leaves.shape
    if leaves.device.type != "cpu" or not rows:
        tree_growth.count_pairs_(counts, leaves)
        return
    by_tree = leaves.T.to(torch.int32).contiguous()
    ranges = by_tree.aminmax(dim=1)
    problem = _Pairs(*map(pointer, (by_tree, *ranges, counts)), *(trees, rows, len(counts)))
    failure = "There is no memory left to count rows of leaves."
    run("pairs", problem, torch.get_num_threads(), failure=failure)


def add_to_leaves_(
    sums: Float[Tensor, "l f"], leaves: Int[Tensor, "n t"], rows: Float[Tensor, "n f"]
) -> None:
    """`tree_growth.add_to_leaves_`.

    Raises:
        IndexError: A row falls into a leaf that does not exist.
    """
    if leaves.device.type != "cpu" or not leaves.numel():
        tree_growth.add_to_leaves_(sums, leaves, rows)
        return
    _check_indices(leaves, len(sums))
    leaves, rows = leaves.to(torch.int32).contiguous(), rows.contiguous()
    problem = _LeafSums(*map(pointer, (leaves, rows, sums)), *leaves.shape, rows.shape[1])
    run("leaf_sums", problem, torch.get_num_threads())


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
    """`tree_growth.leaves_of_rows`.

    Raises:
        IndexError: A node asks about a column, or is followed by a node, that does not exist.
    """
    if rows.device.type != "cpu":
        nodes = columns, thresholds, following, leaves, roots
        return tree_growth.leaves_of_rows(rows, *nodes, depth=depth)
    for indices, size in (
        (columns, rows.shape[1]),
        (following, len(columns)),
        (roots, len(columns)),
    ):
        _check_indices(indices, size)
    out = torch.empty(len(rows), len(roots), dtype=torch.int32)
    taken = [x.contiguous() for x in (rows, columns, thresholds, following, leaves, roots)]
    sizes = len(rows), rows.shape[1], len(roots), depth
    problem = _Ways(*map(pointer, taken), pointer(out), *sizes)
    run("ways", problem, torch.get_num_threads())
    return out


def _check_indices(indices: Int[Tensor, "..."], size: int) -> None:
    low, high = (int(index) for index in indices.aminmax())
    if low < 0 or high >= size:
        raise IndexError(f"Trees with indices of {low} to {high}, where there are {size}.")


TREES: Choice = {
    tree_growth.grown_tree: grown_tree,
    tree_growth.shared_leaves: shared_leaves,
    tree_growth.count_pairs_: count_pairs_,
    tree_growth.add_to_leaves_: add_to_leaves_,
    tree_growth.leaves_of_rows: leaves_of_rows,
}
"""The functions in PyTorch and those that replace them."""
