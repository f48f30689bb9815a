"""Cutting and ordering values, the fastest way on each device."""

import numpy as np
import torch

from tabicl_linear.types import Float, Int, Tensor


def count_below(
    values: Float[Tensor, "c n"],
    boundaries: Float[Tensor, "c k"],
    number: np.ndarray | None = None,
) -> Float[Tensor, "c n"]:
    """Return how many boundaries lie below each value; a NaN is below and above nothing.

    A pass for each boundary: there are few, and a pass over whole rows is vectorised where it does
    not write booleans, which a binary search for each value is not.

    Args:
        values: What is counted for, row by row.
        boundaries: The boundaries of each row, in any order.
        number: How many boundaries of each row count, the first ones; must not rise. All if None.
    """
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
    """Return the order of the rows by rising key; NaN last, equal keys in any order."""
    if keys.device.type == "cpu":
        # NumPy sorts with vector instructions, PyTorch on a CPU does not.
        return torch.from_numpy(np.argsort(keys.numpy(), -1))
    return keys.argsort(-1)
