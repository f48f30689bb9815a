"""Class labels of a task: cutting a target into classes, and covering them in the context."""

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.base import Tasks
from tabicl_linear.priors.bins import argsort
from tabicl_linear.types import Bool, Float, Int, Tensor


def pad_boundaries(boundaries: Float[Tensor, "b k"], num_bins: np.ndarray) -> Float[Tensor, "b k"]:
    """Keep the first `num_bins - 1` boundaries of each task and move the others to infinity."""
    is_used = np.arange(1, boundaries.shape[1] + 1) < num_bins[:, None]
    return boundaries.masked_fill(~torch.as_tensor(is_used, device=boundaries.device), torch.inf)


def randomise_ids(
    ids: Float[Tensor, "b n"],
    num_ids: np.ndarray,
    ordered_probability: np.ndarray,
    *,
    generator: torch.Generator,
) -> Int[Tensor, "b n"]:
    """Renumber the ids `0..num_ids-1` of each task at random.

    A task keeps the order of its ids with its `ordered_probability`, otherwise they are permuted.
    Afterwards the ids of each task are reversed with probability one half.
    """
    b, largest = len(ids), int(num_ids.max())
    device = ids.device
    count = torch.as_tensor(num_ids, device=device).unsqueeze(1)
    ordered = torch.as_tensor(ordered_probability, dtype=torch.float32, device=device).unsqueeze(1)
    index = torch.arange(largest, device=device).expand(b, -1)
    keys = draws.uniform(b, largest, generator=generator).masked_fill(index >= count, 2.0)
    permute = draws.uniform(b, 1, generator=generator) > ordered
    table = torch.where(permute, argsort(keys), index)
    reverse = draws.uniform(b, 1, generator=generator) > 0.5
    return torch.where(reverse, count - 1 - table, table).gather(1, ids.long())


def count_classes(y: Int[Tensor, "b n"], num_classes: int) -> Int[Tensor, "b y"]:
    """Return how many rows each of the classes `0..num_classes-1` has in each task."""
    counts = torch.zeros(len(y), num_classes, dtype=torch.int64, device=y.device)
    return counts.scatter_add_(1, y, torch.ones_like(y))


def reindex_classes(y: Int[Tensor, "b n"], num_classes: int) -> Int[Tensor, "b n"]:
    """Renumber the K classes that occur in each task to `0..K-1`, keeping their order."""
    present: Bool[Tensor, "b y"] = count_classes(y, num_classes) > 0
    return (present.long().cumsum(1) - 1).gather(1, y)


def rotate_classes(y: Int[Tensor, "b n"], generator: torch.Generator) -> Int[Tensor, "b n"]:
    """Shift all labels `0..K-1` of a task by the same random number, modulo K."""
    count = y.amax(1, keepdim=True) + 1
    shift = (draws.uniform(len(y), 1, generator=generator) * count).long()
    return (y + torch.minimum(shift, count - 1)) % count


def cover_classes(
    tasks: Tasks, num_context: int, num_classes: int, generator: torch.Generator
) -> Tasks:
    """Reorder rows so that every class is among the first `num_context` rows, the context.

    The rows of a task must be exchangeable. Then their order is random already, and a task whose
    context has every class stays as it is. In other tasks the first row of each missing class is
    moved into the context, in place of the last rows that are not the first of their class; then
    context and queries are each shuffled. The distribution of the context thus differs from a
    uniform choice of rows by at most the probability that a uniform choice misses a class (in
    total variation).
    """
    b, n = tasks.y.shape
    # Drawn for every task, so that later draws from the generator do not depend on the split.
    keys = torch.rand(b, n, generator=generator, device=tasks.y.device, dtype=torch.float64)
    position = torch.arange(n, device=tasks.y.device).expand(b, n)
    first = torch.full((b, num_classes), -1, device=tasks.y.device)
    first.scatter_reduce_(1, tasks.y, position, "amin", include_self=False)
    moved = (first >= num_context).any(1).nonzero().squeeze(1)
    if not len(moved):
        return tasks
    y, position = tasks.y[moved], position[moved]
    forced = first[moved].gather(1, y) == position
    queue = torch.where(forced, position - n, position).argsort(1)
    order = queue.gather(1, argsort(keys[moved] + (position >= num_context)))
    x = tasks.x[moved]
    tasks.x[moved] = x.gather(1, order.unsqueeze(-1).expand_as(x))
    tasks.y[moved] = y.gather(1, order)
    return tasks
