"""Trees grown by boosting: each explains some of what the trees before it leave unexplained."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.estimator.arrays import Float32Array
from tabicl_linear.estimator.learners.chosen_trees.trees import MANY_NUMBERS, Trees
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.tree_growth import NUMBERS, Questions, grown_tree
from tabicl_linear.types import Bool, Float, Int, Tensor, UInt8

NUM_TREES = 64
DEPTH = 6
FEWEST_IN_LEAF = 3
SHARE_OF_COLUMNS = 0.5
"""Share of the columns that a node chooses from."""
LEARNING_RATE = 0.2
LARGEST_STEP = 4.0
"""Largest step of a leaf, in units of logits, before the learning rate."""
LEAST_GAIN = 1e-9
"""Least gain of a question (a split), in squared residuals: less is rounding."""
MOST_RESIDUALS = 20
"""Maximum number of residuals of a row that questions are chosen by. With more classes, these are
random projections of all residuals."""


class GrownTrees(NamedTuple):
    """Trees, and what each leaf adds to the logits; zero for classes without rows."""

    trees: Trees
    steps: Float[Tensor, "l y"]


class BinnedCells(NamedTuple):
    """Cells as numbers of bins, in the order of their values: a bin for each, or for neighbours.

    Attributes:
        numbers: Bin of each cell, column by column.
        lowest: The smallest value in each bin; infinite if the bin is empty.
        highest: The largest value in each bin; minus infinity if it is empty.
    """

    numbers: UInt8[Tensor, "m n"]
    lowest: Float[Tensor, "m b"]
    highest: Float[Tensor, "m b"]


def binned(z: Float[Tensor, "n m"]) -> BinnedCells:
    """Cells as numbers of bins, which hold equally many rows if there are more values than bins."""
    # The rows of each column in the order of their values, [m, n].
    values, order = z.T.sort(dim=1, stable=True)
    is_new = torch.zeros_like(values, dtype=torch.bool)
    is_new[:, 1:] = values[:, 1:] > values[:, :-1]
    number = is_new.cumsum(1)
    # Where there are too many values, the rank of a value's first row determines its bin.
    rank = torch.arange(len(z)).expand_as(number).where(is_new, 0).cummax(1).values
    number = number.where(number[:, -1:] < NUMBERS, rank * NUMBERS // max(len(z), 1))
    shape = len(number), NUMBERS
    lowest = values.new_full(shape, torch.inf).scatter_reduce_(1, number, values, "amin")
    highest = values.new_full(shape, -torch.inf).scatter_reduce_(1, number, values, "amax")
    numbers = torch.empty_like(number, dtype=torch.uint8)
    return BinnedCells(numbers.scatter_(1, order, number.to(torch.uint8)), lowest, highest)


def grow(
    z: Float[Tensor, "n m"], labels: Int[Tensor, " n"], *, num_classes: int, seed: int
) -> GrownTrees:
    """Grow trees by gradient boosting of the log-loss of all classes at once (Friedman, 2001).

    With many classes, questions are chosen by random projections of the residuals, drawn for each
    tree (Iosipoi and Vakhrushev, 2022). Rows are standardised, without missing values, float32 on
    the CPU; some classes may have no rows. `seed` draws the projections and the columns that nodes
    choose from.
    """
    cells = binned(z)
    # One-hot labels of the classes that occur, [n, k]; of two, the second alone grows a tree.
    classes = labels.unique()
    targets = (labels.unsqueeze(1) == classes).double()
    first = 1 if len(classes) == 2 else 0
    scores = targets.mean(0).log().repeat(len(targets), 1)
    # Every tree reuses this memory: new memory would not fit into the gaps between what stays.
    shares, residuals, curves = (torch.empty_like(targets) for _ in range(3))
    heaps, steps = list[Questions](), list[Tensor]()
    generator = np.random.default_rng([seed, targets.shape[1]])
    for allowed in _allowed(z.shape[1], seed):
        torch.softmax(scores, 1, out=shares)
        torch.sub(targets, shares, out=residuals)
        projections = _projected(residuals[:, first:], generator)
        heap = chosen(grown_tree)(
            cells.numbers, projections, allowed, fewest=FEWEST_IN_LEAF, least=LEAST_GAIN
        )
        # A step of Newton's method for each node, with a curvature of one added.
        torch.sub(1, shares, out=curves).mul_(shares)
        slopes, curvature = _sums(heap.nodes, residuals), _sums(heap.nodes, curves)
        step = (slopes / (curvature + 1)).clamp(-LARGEST_STEP, LARGEST_STEP)
        steps.append(LEARNING_RATE * step)
        scores += torch.index_select(steps[-1], 0, heap.nodes, out=shares)
        heaps.append(heap)
    trees, is_leaf = _compact(heaps, cells)
    leaf_steps = torch.zeros(trees.num_leaves, num_classes, dtype=torch.float32)
    leaf_steps[:, classes] = torch.stack(steps)[is_leaf].float()
    return GrownTrees(trees, leaf_steps)


def _allowed(num_columns: int, seed: int) -> Bool[Tensor, "t q m"]:
    """Columns that each inner node of each tree may ask about, drawn for each node."""
    count = max(1, int(SHARE_OF_COLUMNS * num_columns))
    shape = NUM_TREES, 2**DEPTH - 1, num_columns
    draws = np.random.default_rng(seed).random(shape)
    allowed = np.zeros(shape, dtype=np.bool_)
    np.put_along_axis(allowed, draws.argpartition(count - 1, axis=2)[..., :count], True, axis=2)
    return torch.from_numpy(allowed)


def _projected(
    residuals: Float[Tensor, "n k"], generator: np.random.Generator
) -> Float[Tensor, "n k"]:
    """Residuals projected to at most `MOST_RESIDUALS` numbers of about the same sum of squares."""
    num_classes = residuals.shape[1]
    if num_classes <= MOST_RESIDUALS:
        return residuals
    directions = generator.normal(size=(num_classes, MOST_RESIDUALS)) / MOST_RESIDUALS**0.5
    return residuals @ torch.from_numpy(directions)


def _sums(nodes: Int[Tensor, " n"], of_rows: Float[Tensor, "n k"]) -> Float[Tensor, "q k"]:
    """Sums over the rows of each node."""
    num_nodes = 2 ** (DEPTH + 1) - 1
    if of_rows.shape[1] > MANY_NUMBERS:
        return of_rows.new_zeros(num_nodes, of_rows.shape[1]).index_add_(0, nodes, of_rows)
    # Column by column, since index_add_ makes a call for each row of several numbers.
    places = nodes.numpy()
    sums = [np.bincount(places, column, num_nodes) for column in of_rows.T.numpy()]
    return torch.from_numpy(np.stack(sums, axis=1))


def _compact(heaps: Sequence[Questions], cells: BinnedCells) -> tuple[Trees, Bool[Tensor, "t q"]]:
    """The nodes of all trees side by side, and which places of the heaps hold a leaf.

    Each heap has a place for every node of a complete tree. A place below a leaf is empty: it has a
    node only if the node above asks a question.
    """
    # The column that is asked about at each inner place of each heap, -1 for none, [t, i].
    questions = torch.stack([heap.columns for heap in heaps]).numpy()
    num_trees, num_inner = questions.shape
    # What each place of each heap has, [t, q].
    is_question = np.zeros((num_trees, 2 * num_inner + 1), dtype=np.bool_)
    is_question[:, :num_inner] = questions >= 0
    is_node = np.ones_like(is_question)
    is_node[:, 1:] = is_question[:, :num_inner].repeat(2, axis=1)
    is_leaf = is_node & ~is_question
    number = (is_node.cumsum() - 1).reshape(is_node.shape)
    # Where the questions stand, and what they ask, [k].
    tree, place = is_question.nonzero()
    question, column = number[tree, place], questions[tree, place]
    before, after = torch.stack([heap.cuts for heap in heaps]).numpy()[tree, place].T
    low, high = cells.highest.numpy()[column, before], cells.lowest.numpy()[column, after]
    # The nodes, [n]. The node after a leaf is the leaf itself.
    num_nodes, num_leaves = int(is_node.sum()), int(is_leaf.sum())
    columns, thresholds = np.zeros(num_nodes, np.int32), np.zeros(num_nodes, np.float32)
    columns[question], thresholds[question] = column, midway(low, high)
    no, yes = np.arange(num_nodes, dtype=np.int32), np.arange(num_nodes, dtype=np.int32)
    no[question], yes[question] = number[tree, 2 * place + 2], number[tree, 2 * place + 1]
    leaves = np.zeros(num_nodes, np.int32)
    leaves[number[is_leaf]] = np.arange(num_leaves)
    trees = Trees(
        columns=torch.from_numpy(columns),
        thresholds=torch.from_numpy(thresholds),
        following=torch.from_numpy(np.stack([no, yes], axis=1)),
        leaves=torch.from_numpy(leaves),
        roots=torch.from_numpy(number[:, 0].astype(np.int32)),
        depth=int(np.log2(is_leaf.nonzero()[1].max() + 1)),
        num_leaves=num_leaves,
    )
    return trees, torch.from_numpy(is_leaf)


def midway(low: Float32Array, high: Float32Array) -> Float32Array:
    """The middle in float32, always below the larger value, even if the two are neighbours."""
    middle = (low.astype(np.float64) + high) / 2
    short = middle.astype(np.float32)
    with np.errstate(under="ignore"):  # the number next to 0
        return np.where(short > middle, np.nextafter(short, np.float32(-np.inf)), short)
