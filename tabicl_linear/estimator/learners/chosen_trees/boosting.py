"""Trees grown by boosting: each asks about what the trees before it leave unexplained."""

from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.estimator.arrays import Float32Array, IntArray
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.tree_growth import NUMBERS, Questions, grown_tree
from tabicl_linear.types import Bool, Float, Int, Tensor, UInt8

NUM_TREES = 64
DEPTH = 6
FEWEST_IN_LEAF = 3
SHARE_OF_COLUMNS = 0.5
"""Columns that a node chooses from."""
LEARNING_RATE = 0.2
LARGEST_STEP = 4.0
"""Of a leaf, in units of logits, before the learning rate."""
LEAST_GAIN = 1e-9
"""Of a question, in squared residuals: less is rounding."""


class Grown(NamedTuple):
    """Trees, and what boosting has made of them.

    Attributes:
        trees: The trees.
        steps: What each leaf adds to the logits; zero for classes that no row had.
    """

    trees: Trees
    steps: Float[Tensor, "l y"]


class Binned(NamedTuple):
    """Cells as numbers that keep their order: one for each value, or for neighbours.

    Attributes:
        numbers: Of each column.
        lowest: The smallest value of each number; infinite where there are none.
        highest: The largest value of each number.
    """

    numbers: UInt8[Tensor, "m n"]
    lowest: Float[Tensor, "m b"]
    highest: Float[Tensor, "m b"]


def binned(z: Float[Tensor, "n m"]) -> Binned:
    """Cells as numbers: those of as many rows each where there are more values than numbers."""
    values, order = z.T.sort(dim=1, stable=True)
    is_new = torch.zeros_like(values, dtype=torch.bool)
    is_new[:, 1:] = values[:, 1:] > values[:, :-1]
    number = is_new.cumsum(1)
    # Where values are too many, the rank of a value's first row says its number.
    ranks = torch.arange(len(z)).expand_as(number).where(is_new, 0).cummax(1).values
    coarse = ranks * NUMBERS // max(len(z), 1)
    number = number.where(number[:, -1:] < NUMBERS, coarse)
    shape = len(number), NUMBERS
    lowest = values.new_full(shape, torch.inf).scatter_reduce_(1, number, values, "amin")
    highest = values.new_full(shape, -torch.inf).scatter_reduce_(1, number, values, "amax")
    numbers = torch.empty_like(number, dtype=torch.uint8)
    return Binned(numbers.scatter_(1, order, number.to(torch.uint8)), lowest, highest)


def grow(
    z: Float[Tensor, "n m"], labels: Int[Tensor, " n"], *, num_classes: int, seed: int
) -> Grown:
    """Trees by gradient boosting of the log-loss of all classes at once (Friedman, 2001).

    Args:
        z: Standardised rows without missing values, float32 on the CPU.
        labels: Class index of each row, from 0; classes may be lacking.
        num_classes: Classes in all.
        seed: Of the columns that nodes choose from.
    """
    classes = labels.unique()
    targets = (labels.unsqueeze(1) == classes).double()
    # Of two classes one says all.
    fitted = slice(1, None) if targets.shape[1] == 2 else slice(None)
    scores = targets.mean(0).log().expand(len(targets), -1)
    columns = binned(z)
    grown, steps = list[Questions](), list[Tensor]()
    for allowed in _allowed(z.shape[1], seed):
        shares = scores.softmax(1)
        residuals = targets - shares
        tree = chosen(grown_tree)(
            columns.numbers, residuals[:, fitted], allowed, fewest=FEWEST_IN_LEAF, least=LEAST_GAIN
        )
        steps.append(LEARNING_RATE * _steps(tree.nodes, residuals, shares * (1 - shares)))
        scores = scores + steps[-1][tree.nodes]
        grown.append(tree)
    trees, is_leaf = _with_thresholds(grown, columns)
    of_leaves = torch.zeros(trees.num_leaves, num_classes)
    of_leaves[:, classes] = torch.stack(steps)[is_leaf].float()
    return Grown(trees, of_leaves)


def _allowed(num_columns: int, seed: int) -> Bool[Tensor, "t q m"]:
    """Columns that the inner nodes of each tree may ask about, drawn for each."""
    count = max(1, int(SHARE_OF_COLUMNS * num_columns))
    shape = NUM_TREES, 2**DEPTH - 1, num_columns
    draws = np.random.default_rng(seed).random(shape)
    allowed = np.zeros(shape, dtype=np.bool_)
    np.put_along_axis(allowed, draws.argpartition(count - 1, axis=2)[..., :count], True, axis=2)
    return torch.from_numpy(allowed)


def _steps(
    nodes: Int[Tensor, " n"], slopes: Float[Tensor, "n k"], curves: Float[Tensor, "n k"]
) -> Float[Tensor, "q k"]:
    """A step of Newton's method for each node, with a curvature of one added."""
    # One column after the other: rows of several numbers are added one by one, each by a call.
    places, num_nodes = nodes.numpy(), 2 ** (DEPTH + 1) - 1
    slope, curve = (
        torch.stack(
            [torch.from_numpy(np.bincount(places, column, num_nodes)) for column in part.T.numpy()],
            dim=1,
        )
        for part in (slopes, curves)
    )
    return (slope / (curve + 1)).clamp(-LARGEST_STEP, LARGEST_STEP)


def _with_thresholds(grown: list[Questions], columns: Binned) -> tuple[Trees, Bool[Tensor, "t q"]]:
    """The trees side by side with values in place of numbers, and which nodes are leaves."""
    asked = torch.stack([tree.columns for tree in grown]).numpy()
    before, after = torch.stack([tree.cuts for tree in grown]).numpy().transpose(2, 0, 1)
    num_trees, inner = asked.shape
    # Nodes below a leaf are not there: a node is, where the one above asks.
    is_asking = np.zeros((num_trees, 2 * inner + 1), dtype=np.bool_)
    is_asking[:, :inner] = asked >= 0
    is_there = np.ones_like(is_asking)
    is_there[:, 1:] = is_asking[:, :inner].repeat(2, axis=1)
    place = (is_there.cumsum() - 1).reshape(is_there.shape)
    is_leaf = is_there & ~is_asking
    leaves = np.where(is_leaf, (is_leaf.cumsum() - 1).reshape(place.shape), 0)
    following = np.stack([place, place], axis=2)
    some = asked >= 0
    following[:, :inner][some] = place[:, 1:].reshape(num_trees, inner, 2)[some][:, ::-1]
    thresholds = np.zeros(place.shape, dtype=np.float32)
    column = asked[some]
    low, high = columns.highest.numpy(), columns.lowest.numpy()
    thresholds[:, :inner][some] = midway(low[column, before[some]], high[column, after[some]])
    of_node = np.zeros(place.shape, dtype=np.int64)
    of_node[:, :inner][some] = column
    level = np.log2(np.arange(1, 2 * inner + 2)).astype(np.int64)
    trees = Trees(
        columns=_int32(of_node[is_there]),
        thresholds=torch.from_numpy(thresholds[is_there]),
        following=_int32(following[is_there]),
        leaves=_int32(leaves[is_there]),
        roots=_int32(place[:, 0]),
        depth=int((level * is_leaf).max()),
        num_leaves=int(is_leaf.sum()),
    )
    return trees, torch.from_numpy(is_leaf)


def midway(low: Float32Array, high: Float32Array) -> Float32Array:
    """The middle in float32, never as large as the larger value: it may be the next one."""
    middle = (low.astype(np.float64) + high) / 2
    short = middle.astype(np.float32)
    return np.where(short > middle, np.nextafter(short, np.float32(-np.inf)), short)


def _int32(values: IntArray) -> Int[Tensor, "..."]:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int32))
