"""Random trees on the columns of many tasks: drawn and evaluated level by level.

The trees of all tasks lie side by side, so that tasks may have different numbers of trees of
different depths without padding. No loop runs over tasks, trees or rows.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from tabicl_linear.priors import draws
from tabicl_linear.priors.bins import argsort
from tabicl_linear.types import Float, Int, Tensor

GRID = 64
"""Most rows whose values serve as thresholds."""


class Columns(NamedTuple):
    """The columns that trees can split on.

    A nominal column has several views, each with a random score for each category. A threshold on a
    view sends a random subset of the categories to the left.

    Attributes:
        values: One row for each numeric column and each view.
        slots: `[b s]`, rows of `values` that belong to each task.
        weights: `[b s]`, relative probability that a node of the task splits on the slot; not all
            zero.
    """

    values: Float[Tensor, "w n"]
    slots: Int[Tensor, "b s"]
    weights: Float[Tensor, "b s"]

    def select(self, index: Int[Tensor, " t"]) -> "Columns":
        """Return the columns of the tasks in `index`."""
        return Columns(self.values, self.slots[index], self.weights[index])


class Trees(NamedTuple):
    """Sizes of the trees of all tasks; every field is an array `[t]`.

    Sorted by decreasing depth; trees of one depth by increasing number of outputs, then by task.

    Attributes:
        task: The task that a tree belongs to.
        depth: Levels of decisions.
        scale: Factor on its leaf values.
        level_scale: Factor by which the deviation of a node's contribution changes per level.
        num_outputs: The tree adds to the first `num_outputs` outputs of its task.
        focus: Deviation of the logarithms of the column weights in this tree.
        spread: Share of a node's range in which its threshold is uniform.
    """

    task: np.ndarray
    depth: np.ndarray
    num_outputs: np.ndarray
    scale: np.ndarray
    level_scale: np.ndarray
    focus: np.ndarray
    spread: np.ndarray


def sum_of_trees(
    columns: Columns, trees: Trees, generator: torch.Generator
) -> dict[int, Float[Tensor, "b n o"]]:
    """Draw the trees and return the sum of the leaf values that each row of a task reaches.

    A node adds a Gaussian number to each output; its deviation is multiplied by `level_scale` from
    level to level. The value of a leaf is the sum over its path.

    Returns:
        `{number of outputs: sums}`; zero in tasks that have no tree with that number of outputs.
    """
    b, n = len(columns.slots), columns.values.shape[1]
    grid = _thresholds(columns.values, generator)
    grove, nodes = _plant(columns, trees, generator)
    # Of k nodes a level, node i of tree t has number t * k + i; its children have 2 * number (+ 1).
    node = torch.arange(len(trees.task), device=grid.device).unsqueeze(1).expand(-1, n)
    totals = {int(o): grid.new_zeros(b, n, int(o)) for o in np.unique(trees.num_outputs)}
    for level in range(int(trees.depth.max())):
        split = _draw_splits(grove, nodes, grid, generator)
        node = _descend(columns.values, split, node)
        left = int((trees.depth > level + 1).sum())
        nodes = _grow(grove, nodes, split, level=level, left=left, generator=generator)
        first = left
        for width, total in totals.items():
            count = int((trees.num_outputs[first : len(node)] == width).sum())
            finished = slice(first, first + count)
            first += count
            if count:
                _add_leaves_(total, nodes.value[..., :width], node[finished], trees.task[finished])
        grove, nodes, node = grove.first(left), nodes.first(left), node[:left]
    return totals


class _Grove(NamedTuple):
    """Properties of trees that are the same at all levels.

    Attributes:
        slots: Rows of `Columns.values` that a tree's nodes can split on.
        chance: Cumulative probabilities of these slots.
        scale, level_scale, spread: As in `Trees`.
    """

    slots: Int[Tensor, "t s"]
    chance: Float[Tensor, "t s"]
    scale: Float[Tensor, "t 1 1"]
    level_scale: Float[Tensor, "t 1 1"]
    spread: Float[Tensor, "t 1"]

    def first(self, count: int) -> "_Grove":
        return _Grove(*(field[:count] for field in self))


class _Nodes(NamedTuple):
    """The nodes of one level, k of them in each tree.

    Attributes:
        inside: `low` and `high`; thresholds `low..high-1` of a slot lie inside the node's range.
        value: Sum of the contributions along the node's path.
    """

    inside: Int[Tensor, "2 t k s"]
    value: Float[Tensor, "t k o"]

    def first(self, count: int) -> "_Nodes":
        return _Nodes(self.inside[:, :count], self.value[:count])


class _Splits(NamedTuple):
    """The question of each node: `values[row] > threshold`, with threshold `rank` of `slot`."""

    slot: Int[Tensor, "t k 1"]
    rank: Int[Tensor, "t k 1"]
    row: Int[Tensor, "t k"]
    threshold: Float[Tensor, "t k"]


def _thresholds(values: Float[Tensor, "w n"], generator: torch.Generator) -> Float[Tensor, "w g"]:
    """Return the values of some random rows, ascending."""
    n = values.shape[1]
    rows = torch.randint(n, (min(n, GRID),), generator=generator, device=values.device)
    grid = values[:, rows]
    return grid.gather(1, argsort(grid))


def _plant(columns: Columns, trees: Trees, generator: torch.Generator) -> tuple[_Grove, _Nodes]:
    """Draw how likely each tree is to split on each slot; return the trees and their root nodes."""
    device = columns.values.device
    task = torch.as_tensor(trees.task, device=device)
    scale, level_scale, spread, focus = (
        torch.as_tensor(field, dtype=torch.float32, device=device).unsqueeze(1)
        for field in (trees.scale, trees.level_scale, trees.spread, trees.focus)
    )
    t, s = len(task), columns.slots.shape[1]
    chance = draws.normal(t, s, generator=generator).mul_(focus).exp_()
    chance = chance.mul_(columns.weights[task]).cumsum(1)
    chance /= chance[:, -1:].clone()
    grove = _Grove(
        columns.slots[task], chance, scale.unsqueeze(1), level_scale.unsqueeze(1), spread
    )
    inside = torch.zeros(2, t, 1, s, dtype=torch.int16, device=device)
    inside[1] = min(columns.values.shape[1], GRID)
    return grove, _Nodes(inside, scale.new_zeros(t, 1, int(trees.num_outputs.max())))


def _draw_splits(
    grove: _Grove, nodes: _Nodes, grid: Float[Tensor, "w g"], generator: torch.Generator
) -> _Splits:
    """Draw a column and a threshold inside the node's range for each node."""
    _, t, k, _ = nodes.inside.shape
    choice, place = draws.uniform(2, t, k, generator=generator)
    # The cumulative sum is one from the last slot with a weight on, so no later slot is drawn.
    slot = torch.searchsorted(grove.chance, choice, right=True)
    slot = slot.clamp_(max=grove.slots.shape[1] - 1)
    low, high = nodes.inside.gather(3, slot.expand(2, -1, -1).unsqueeze(3)).squeeze(3)
    place = 0.5 + (place - 0.5) * grove.spread
    # A node without a threshold inside it takes one outside, so all its rows go the same way.
    rank = low + (place * (high - low).clamp_(min=0)).long()
    rank = rank.clamp_(max=grid.shape[1] - 1)
    row = grove.slots.gather(1, slot)
    threshold = grid.take(row * grid.shape[1] + rank)
    return _Splits(slot.unsqueeze(2), rank.unsqueeze(2), row, threshold)


def _descend(
    values: Float[Tensor, "w n"], split: _Splits, node: Int[Tensor, "t n"]
) -> Int[Tensor, "t n"]:
    """Return the child of its node that each row reaches: the right one above the threshold."""
    n = values.shape[1]
    if split.row.shape[1] == 1:
        is_right = values[split.row[:, 0]] > split.threshold
    else:
        flat = node.flatten()
        place = (split.row * n).view(-1).index_select(0, flat).view_as(node)
        place += torch.arange(n, device=values.device)
        value = values.view(-1).index_select(0, place.view(-1))
        is_right = value > split.threshold.view(-1).index_select(0, flat)
    return (node * 2).add_(is_right.view_as(node))


def _grow(
    grove: _Grove,
    nodes: _Nodes,
    split: _Splits,
    *,
    level: int,
    left: int,
    generator: torch.Generator,
) -> _Nodes:
    """Return the children of all nodes, left and right in turn; ranges only for the first trees."""
    inside = nodes.inside[:, :left]
    slot, rank = split.slot[:left], split.rank[:left].to(inside.dtype)
    inside = torch.stack([inside, inside], 3)
    inside[1, :, :, 0].scatter_(2, slot, rank)
    inside[0, :, :, 1].scatter_(2, slot, rank + 1)
    value = nodes.value.repeat_interleave(2, 1)
    step = draws.normal(*value.shape, generator=generator)
    value += step * grove.scale * grove.level_scale**level
    return _Nodes(inside.flatten(2, 3), value)


def _add_leaves_(
    total: Float[Tensor, "b n o"],
    value: Float[Tensor, "t k o"],
    node: Int[Tensor, "d n"],
    task: np.ndarray,
) -> None:
    """Add the values of the leaves that rows reach in d trees to their tasks, tree by tree."""
    reached = functional.embedding(node, value.flatten(0, 1)).flatten(1)
    sums = total.flatten(1)
    # One order of summation for all rows: rows in the same leaves must have exactly the same sum,
    # and draws must depend on the generator alone.
    if total.device.type == "cpu":
        sums.index_add_(0, torch.as_tensor(task, device=total.device), reached)
    else:
        # Where `index_add_` uses atomic operations, its order is not fixed.
        lengths = torch.as_tensor(np.bincount(task, minlength=len(total)), device=total.device)
        sums += torch.segment_reduce(reached, "sum", lengths=lengths, unsafe=True, initial=0.0)
