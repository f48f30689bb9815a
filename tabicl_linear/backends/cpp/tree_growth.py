"""Growth of trees, and what rows and leaves share, in C++ (`csrc/trees.cpp`), on the CPU."""

import ctypes
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from tabicl_linear.backends.cpp.loader import library, pointer
from tabicl_linear.kernels import tree_growth
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.kernels.tree_growth import Questions
from tabicl_linear.types import Bool, Float, Int, Tensor, UInt8

WORD = 64
MOST_TREES = 255
"""Counted in bytes."""

_address, _count = ctypes.c_void_p, ctypes.c_int64


class _Tree(ctypes.Structure):
    _fields_ = (
        *((name, _address) for name in ("numbers", "targets", "allowed")),
        *((name, _address) for name in ("columns", "cuts", "nodes")),
        *((name, _count) for name in ("rows", "num_columns", "outputs", "depth", "fewest")),
        ("least", ctypes.c_double),
    )


class _Shared(ctypes.Structure):
    _fields_ = (
        *((name, _address) for name in ("leaves", "out")),
        *((name, _count) for name in ("trees", "rows", "padded")),
    )


class _Pairs(ctypes.Structure):
    _fields_ = (
        *((name, _address) for name in ("leaves", "counts")),
        *((name, _count) for name in ("trees", "rows", "num_leaves")),
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
    if not _functions()["tree"](ctypes.byref(problem)):
        raise MemoryError("There is no memory left to grow a tree.")
    return questions


def shared_leaves(leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n n"]:
    """`tree_growth.shared_leaves`."""
    rows, count = leaves.shape
    if leaves.device.type != "cpu" or count > MOST_TREES:
        return tree_growth.shared_leaves(leaves)
    # Leaves of one tree are numbered one after the other, and are fewer than 256: bytes tell them.
    small = F.pad(leaves.T.to(torch.uint8), (0, -rows % WORD)).contiguous()
    out = torch.empty(rows, rows)
    problem = _Shared(*map(pointer, (small, out)), *(count, rows, small.shape[1]))
    _functions()["shared"](ctypes.byref(problem), torch.get_num_threads())
    return out


def count_pairs_(counts: Int[Tensor, "l l"], leaves: Int[Tensor, "n t"]) -> None:
    """`tree_growth.count_pairs_`."""
    rows, trees = leaves.shape
    if leaves.device.type != "cpu" or not rows:
        tree_growth.count_pairs_(counts, leaves)
        return
    by_tree = leaves.T.to(torch.int32).contiguous()
    problem = _Pairs(*map(pointer, (by_tree, counts)), *(trees, rows, len(counts)))
    if not _functions()["pairs"](ctypes.byref(problem), torch.get_num_threads()):
        raise MemoryError("There is no memory left to count rows of leaves.")


TREES: Choice = {
    tree_growth.grown_tree: grown_tree,
    tree_growth.shared_leaves: shared_leaves,
    tree_growth.count_pairs_: count_pairs_,
}
"""Replaces the functions in PyTorch."""


@cache
def _functions() -> dict[str, Any]:
    tree, shared, pairs = (library()[f"tabicl_{name}"] for name in ("tree", "shared", "pairs"))
    tree.argtypes, tree.restype = [ctypes.POINTER(_Tree)], ctypes.c_bool
    shared.argtypes, shared.restype = [ctypes.POINTER(_Shared), _count], None
    pairs.argtypes, pairs.restype = [ctypes.POINTER(_Pairs), _count], ctypes.c_bool
    return {"tree": tree, "shared": shared, "pairs": pairs}
