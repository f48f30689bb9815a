"""Features of a standardised value; embeddings are linear in them."""

import math
from typing import Literal

import torch

from tabicl_linear.embedding.constants import constants
from tabicl_linear.types import Float, Tensor

ValueCode = Literal["linear", "fourier"]
FREQUENCIES = tuple(math.pi / 4 * 2**k for k in range(4))
"""Radians per standard deviation: periods from 8 deviations, the bulk of a column, down to one."""
FEATURES: dict[ValueCode, int] = {"linear": 1, "fourier": 1 + 2 * len(FREQUENCIES)}
"""Number of features of one value."""


def value_features(x: Float[Tensor, "*shape m"], code: ValueCode) -> Float[Tensor, "*shape f"]:
    """The features of all values of a row or cell, one value after the other.

    linear: the value x. fourier: x, then sin(w x) for every w in `FREQUENCIES`, then 1 - cos(w x)
    for each. All are zero if x is, as in a padded or constant column.
    """
    if code == "linear":
        return x
    angles = x.unsqueeze(-1) * constants(FREQUENCIES, x)
    return torch.cat([x.unsqueeze(-1), angles.sin(), 1 - angles.cos()], dim=-1).flatten(-2)
