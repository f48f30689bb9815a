"""Cutting and ordering values, the fastest way on each device."""

import numpy as np
import torch

from tabicl_linear.backends.cpp import random
from tabicl_linear.types import Float, Int, Tensor


def count_below(
    values: Float[Tensor, "c n"],
    boundaries: Float[Tensor, "c k"],
    number: np.ndarray | None = None,
) -> Float[Tensor, "c n"]:
    """Return how many boundaries lie below each value; comparisons with NaN are false.

    Every value is compared with every boundary. Boundaries are few, and these comparisons are
    vectorised (in PyTorch only if their results are not booleans), unlike a binary search.

    Args:
        values: Rows of values; each row has its own boundaries.
        boundaries: The boundaries of each row, in any order.
        number: How many boundaries of each row count, the first ones; must not increase from row
            to row. All count if None.
    """
    if random.serves(values.device) and values.dtype == boundaries.dtype == torch.float32:
        numbers = None if number is None else torch.from_numpy(number.astype(np.int64))
        return random.count_below(values, boundaries, numbers)
    count = torch.zeros_like(values)
    step = torch.empty_like(values)
    most = values.shape[0]
    for index, boundary in enumerate(boundaries.unsqueeze(-1).unbind(1)):
        rows = most if number is None else int((number > index).sum())
        if rows == most:
            count += torch.gt(values, boundary, out=step)
        else:
            count[:rows] += torch.gt(values[:rows], boundary[:rows], out=step[:rows])
    return count


def argsort(keys: Float[Tensor, "... n"]) -> Int[Tensor, "... n"]:
    """Return the indices that sort the keys in ascending order; NaN last, ties in any order."""
    if keys.device.type == "cpu":
        # NumPy sorts with vector instructions; PyTorch does not on a CPU.
        return torch.from_numpy(np.argsort(keys.numpy(), -1))
    return keys.argsort(-1)
