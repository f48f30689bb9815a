"""Turns drawn columns and class ids into tasks; tables of a single class are drawn again."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.errors import DataError
from tabicl_linear.priors import classes, draws
from tabicl_linear.priors.base import Tasks, TaskShape
from tabicl_linear.types import Bool, Float, Int, Tensor

LARGEST_SHARE = 0.98
"""Largest share of rows that one class of a task may have."""
MAX_ROUNDS = 1000


class Drawn(NamedTuple):
    """Drawn tables, before their classes are numbered and their rows ordered.

    Attributes:
        x: Columns, rows last.
        y: Class ids; some may not occur.
        categorical: Which columns hold category codes.
    """

    x: Float[Tensor, "b m n"]
    y: Int[Tensor, "b n"]
    categorical: Bool[Tensor, "b m"]


@torch.no_grad()
def kept_tasks(
    draw: Callable[[int, np.random.Generator], Drawn], shape: TaskShape, generator: torch.Generator
) -> Tasks:
    """Draw until every task has two classes, then number its classes and cover them.

    Args:
        draw: Draws as many tables as its first argument says, with exchangeable rows, on the
            device of `generator`.
        shape: Sizes of the batch.
        generator: Seeds the NumPy generator that is passed to `draw`, and draws the numbers of the
            classes and the order of rows.

    Raises:
        DataError: No task can have the shape, or hardly any draw has two classes.
    """
    shape.validate()
    rng = draws.numpy_generator(generator)
    with torch.autocast(generator.device.type, enabled=False):
        of_two = partial(_of_two_classes, draw, shape, rng)
        tables = Drawn(*until_kept(of_two, shape, "two classes; raise num_rows"))
        return covered(tables, shape, generator)


def _of_two_classes(
    draw: Callable[[int, np.random.Generator], Drawn],
    shape: TaskShape,
    rng: np.random.Generator,
    count: int,
) -> tuple[Tensor, ...]:
    """Draw `count` tables and return those of at least two classes, none of them too large."""
    tables = draw(count, rng)
    largest = classes.count_classes(tables.y, shape.num_classes).amax(1)
    index = (largest <= min(LARGEST_SHARE * shape.num_rows, shape.num_rows - 1)).nonzero()[:, 0]
    return tuple(part[index] for part in tables)


def until_kept(
    draw: Callable[[int], tuple[Tensor, ...]], shape: TaskShape, wanted: str
) -> tuple[Tensor, ...]:
    """Draw until the whole batch is kept, and join what was.

    Args:
        draw: Draws as many tables as it is told and returns the parts `[b ...]` of those to keep.
        shape: Sizes of the batch.
        wanted: What hardly any draw has if the batch cannot be filled, and the remedy.

    Raises:
        DataError: Some tables are still missing after `MAX_ROUNDS` draws.
    """
    kept, missing = list[tuple[Tensor, ...]](), shape.batch_size
    for _ in range(MAX_ROUNDS):
        kept.append(draw(missing))
        missing -= len(kept[-1][0])
        if not missing:
            return tuple(torch.cat(parts) for parts in zip(*kept, strict=True))
    raise DataError(
        f"num_rows={shape.num_rows} with num_classes={shape.num_classes}: hardly any draw has "
        f"{wanted}."
    )


def covered(tables: Drawn, shape: TaskShape, generator: torch.Generator) -> Tasks:
    """Number the classes of tables and reorder rows so that the context holds each of them."""
    y = classes.rotate_classes(classes.reindex_classes(tables.y, shape.num_classes), generator)
    tasks = Tasks(tables.x.transpose(1, 2).contiguous(), y, tables.categorical)
    return classes.cover_classes(tasks, shape.num_context, shape.num_classes, generator)


def flip_classes(
    y: Int[Tensor, "b n"], rate: np.ndarray, count: np.ndarray, generator: torch.Generator
) -> Int[Tensor, "b n"]:
    """Replace labels, with each task's probability `rate`, by random ones below its `count`."""
    rates = torch.as_tensor(rate, dtype=torch.float32, device=y.device).unsqueeze(1)
    counts = torch.as_tensor(count, device=y.device).unsqueeze(1)
    chance, other = draws.uniform(2, *y.shape, generator=generator)
    other = torch.minimum((other * counts).long(), counts - 1)
    return torch.where(chance < rates, other, y)


def cut_into_codes(
    z: Float[Tensor, "c n"], count: np.ndarray, skew: np.ndarray, generator: torch.Generator
) -> Int[Tensor, "c n"]:
    """Cut roughly normal columns into categories, numbered in random order.

    Args:
        z: The columns.
        count: Number of categories of each column.
        skew: Standard deviation of the logarithms of the category shares.
        generator: Draws shares and codes.
    """
    device, largest = z.device, int(count.max())
    counts = torch.as_tensor(count, device=device).unsqueeze(1)
    deviation = torch.as_tensor(skew, dtype=z.dtype, device=device).unsqueeze(1)
    weights, keys = torch.randn(2, len(z), largest, generator=generator, device=device)
    is_unused = torch.arange(largest, device=device) >= counts
    shares = (weights * deviation).exp().masked_fill(is_unused, 0.0).cumsum(1)
    place = torch.special.ndtr(z) * shares[:, -1:]
    rank = torch.minimum(torch.searchsorted(shares, place.contiguous()), counts - 1)
    codes = keys.masked_fill(is_unused, torch.inf).argsort(1)
    return codes.gather(1, rank)
