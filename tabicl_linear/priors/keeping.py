"""Turns drawn columns and class ids into tasks; tables of a single class are drawn again."""

from collections.abc import Callable
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
        return _covered(_of_two_classes(draw, shape, rng), shape, generator)


def _of_two_classes(
    draw: Callable[[int, np.random.Generator], Drawn], shape: TaskShape, rng: np.random.Generator
) -> Drawn:
    accepted, missing = list[Drawn](), shape.batch_size
    most = min(LARGEST_SHARE * shape.num_rows, shape.num_rows - 1)
    for _ in range(MAX_ROUNDS):
        tables = draw(missing, rng)
        largest = classes.count_classes(tables.y, shape.num_classes).amax(1)
        index = (largest <= most).nonzero().squeeze(1)
        accepted.append(Drawn(*(part[index] for part in tables)))
        missing -= len(index)
        if not missing:
            return Drawn(*(torch.cat(parts) for parts in zip(*accepted, strict=True)))
    raise DataError(
        f"num_rows={shape.num_rows} with num_classes={shape.num_classes}: hardly any draw has "
        "two classes; raise num_rows."
    )


def _covered(tables: Drawn, shape: TaskShape, generator: torch.Generator) -> Tasks:
    y = classes.rotate_classes(classes.reindex_classes(tables.y, shape.num_classes), generator)
    tasks = Tasks(tables.x.transpose(1, 2).contiguous(), y, tables.categorical)
    return classes.cover_classes(tasks, shape.num_context, shape.num_classes, generator)


def flip_classes(
    y: Int[Tensor, "b n"],
    rate: Float[Tensor, " b"],
    count: Int[Tensor, " b"],
    generator: torch.Generator,
) -> Int[Tensor, "b n"]:
    """Replace labels, with each task's probability `rate`, by random ones below its `count`."""
    chance, other = torch.rand(2, *y.shape, generator=generator, device=y.device)
    other = torch.minimum((other * count.unsqueeze(1)).long(), count.unsqueeze(1) - 1)
    return torch.where(chance < rate.unsqueeze(1), other, y)


def cut_into_codes(
    z: Float[Tensor, "c n"],
    count: Int[Tensor, " c"],
    skew: Float[Tensor, " c"],
    generator: torch.Generator,
) -> Int[Tensor, "c n"]:
    """Cut roughly normal columns into categories, numbered in random order.

    Args:
        z: The columns.
        count: Number of categories of each column.
        skew: Standard deviation of the logarithms of the category shares.
        generator: Draws shares and codes.
    """
    columns, largest = len(z), int(count.max())
    device = z.device
    weights, keys = torch.randn(2, columns, largest, generator=generator, device=device)
    is_unused = torch.arange(largest, device=device) >= count.unsqueeze(1)
    shares = (weights * skew.unsqueeze(1)).exp().masked_fill(is_unused, 0.0).cumsum(1)
    place = torch.special.ndtr(z) * shares[:, -1:]
    rank = torch.minimum(torch.searchsorted(shares, place.contiguous()), count.unsqueeze(1) - 1)
    codes = keys.masked_fill(is_unused, torch.inf).argsort(1)
    return codes.gather(1, rank)
