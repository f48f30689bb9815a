"""Features of a standardised value, from which embeddings are linear."""

import math
from typing import Literal

import torch

from tabicl_linear.embedding.constants import constants
from tabicl_linear.types import Float, Tensor

ValueCode = Literal["linear", "fourier"]
FREQUENCIES = tuple(math.pi / 4 * 2**k for k in range(4))
"""Radians per standard deviation: periods of 8 deviations, the bulk of a column, down to one."""
FEATURES: dict[ValueCode, int] = {"linear": 1, "fourier": 1 + 2 * len(FREQUENCIES)}
"""Number of features of one value."""


def value_features(x: Float[Tensor, "*shape m"], code: ValueCode) -> Float[Tensor, "*shape f"]:
    """Features of all values of a row or a cell, side by side.

    linear: the value x. fourier: x, then sin(w x) and 1 - cos(w x) for every w of `FREQUENCIES`.
    All are zero for a value of zero, such as that of a padded or constant column.
    """
    if code == "linear":
        return x
    angles = x.unsqueeze(-1) * constants(FREQUENCIES, x)
    return torch.cat([x.unsqueeze(-1), angles.sin(), 1 - angles.cos()], dim=-1).flatten(-2)
