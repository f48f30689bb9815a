"""Labels of a task: cutting a target into classes, and putting every class into the context."""

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.base import Tasks
from tabicl_linear.types import Bool, Float, Int, Tensor


def bin_by_boundaries(
    values: Float[Tensor, "b n"], boundaries: Float[Tensor, "b k"]
) -> Int[Tensor, "b n"]:
    """Return how many boundaries lie below each value; a NaN is below and above nothing."""
    ordered = boundaries.nan_to_num(torch.inf, torch.inf, -torch.inf).sort(1).values
    return torch.searchsorted(ordered, values.nan_to_num(-torch.inf, torch.inf, -torch.inf))


def rank_boundaries(
    values: Float[Tensor, "b n"], rows: Int[Tensor, "b k"], num_bins: np.ndarray
) -> Float[Tensor, "b k"]:
    """Return the values of the first `num_bins - 1` of `rows`, padded with infinity."""
    return pad_boundaries(values.gather(1, rows), num_bins)


def pad_boundaries(boundaries: Float[Tensor, "b k"], num_bins: np.ndarray) -> Float[Tensor, "b k"]:
    """Keep the first `num_bins - 1` boundaries of each task and move the others to infinity."""
    used = np.arange(1, boundaries.shape[1] + 1) < num_bins[:, None]
    return boundaries.masked_fill(~torch.as_tensor(used, device=boundaries.device), torch.inf)


def randomise_ids(
    ids: Int[Tensor, "b n"],
    num_ids: np.ndarray,
    ordered_probability: np.ndarray,
    *,
    generator: torch.Generator,
) -> Int[Tensor, "b n"]:
    """Permute the ids `0..num_ids-1` of each task unless they stay ordered; then reverse half."""
    b, largest = len(ids), int(num_ids.max())
    device = ids.device
    count = torch.as_tensor(num_ids, device=device).unsqueeze(1)
    ordered = torch.as_tensor(ordered_probability, dtype=torch.float32, device=device).unsqueeze(1)
    index = torch.arange(largest, device=device).expand(b, -1)
    keys = draws.uniform(b, largest, generator=generator).masked_fill(index >= count, 2.0)
    permute = draws.uniform(b, 1, generator=generator) > ordered
    table = torch.where(permute, keys.argsort(1), index)
    reverse = draws.uniform(b, 1, generator=generator) > 0.5
    return torch.where(reverse, count - 1 - table, table).gather(1, ids)


def count_classes(y: Int[Tensor, "b n"], num_classes: int) -> Int[Tensor, "b y"]:
    """Return how many rows each of the classes `0..num_classes-1` has in each task."""
    counts = torch.zeros(len(y), num_classes, dtype=torch.int64, device=y.device)
    return counts.scatter_add_(1, y, torch.ones_like(y))


def reindex_classes(y: Int[Tensor, "b n"], num_classes: int) -> Int[Tensor, "b n"]:
    """Renumber labels to `0..K-1`, K the classes that occur in a task, keeping their order."""
    present: Bool[Tensor, "b y"] = count_classes(y, num_classes) > 0
    return (present.long().cumsum(1) - 1).gather(1, y)


def rotate_classes(y: Int[Tensor, "b n"], generator: torch.Generator) -> Int[Tensor, "b n"]:
    """Add one random number to all labels `0..K-1` of a task, modulo K."""
    count = y.amax(1, keepdim=True) + 1
    shift = (draws.uniform(len(y), 1, generator=generator) * count).long()
    return (y + torch.minimum(shift, count - 1)) % count


def covering_order(
    y: Int[Tensor, "b n"], num_context: int, num_classes: int, generator: torch.Generator
) -> Int[Tensor, "b n"]:
    """Return random row orders whose first `num_context` rows hold every class of the task.

    Rows are put into a uniformly random order. The first row of each class in that order, a
    uniformly random one of the class, goes to the context; the other rows fill it up in their
    order; then context and queries are each shuffled. Where the random order covers the classes by
    itself, its context set stays as it is, so the law of the context differs from a uniform one by
    at most the probability that a uniform one misses a class (in total variation).
    """
    b, n = y.shape
    position = draws.permutations(b, n, generator=generator)
    first = torch.full((b, num_classes), n, dtype=position.dtype, device=y.device)
    first.scatter_reduce_(1, y, position, "amin")
    forced = first.gather(1, y) == position
    queue = torch.where(forced, position - n, position).argsort(1)
    context = draws.permutations(b, num_context, generator=generator)
    queries = num_context + draws.permutations(b, n - num_context, generator=generator)
    return queue.gather(1, torch.cat([context, queries], 1))


def reorder_rows(tasks: Tasks, order: Int[Tensor, "b n"]) -> Tasks:
    """Return the tasks with row `i` taken from row `order[:, i]`."""
    x = tasks.x.gather(1, order.unsqueeze(-1).expand_as(tasks.x))
    return Tasks(x, tasks.y.gather(1, order), tasks.categorical)
