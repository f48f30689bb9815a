"""Standardises the cells of a table by the statistics of their columns, in plain PyTorch."""

import math

import torch

from tabicl_linear.types import Float, Tensor

MAX_STANDARDISED = 100.0
"""Bound on standardised values."""
LARGEST = 1e100
"""Larger values are replaced by this, so that sums of squares stay finite in float64."""


def standard_scores(
    x: Float[Tensor, "b n m"],
    fill: Float[Tensor, "b m"],
    lower: Float[Tensor, "b m"],
    upper: Float[Tensor, "b m"],
    mean: Float[Tensor, "b m"],
    factor: Float[Tensor, "b m"],
    row_scale: Float[Tensor, " b"],
) -> Float[Tensor, "b n m"]:
    """Impute, clip, standardise and scale rows, in float64; returned in the dtype of `x`.

    All arguments but `x` are float64.

    Args:
        x: The rows; NaN and infinities are missing values.
        fill: The values that replace missing ones.
        lower: Lower bound of the soft clip.
        upper: Upper bound of the soft clip.
        mean: Subtracted from clipped values.
        factor: Factor on centred values.
        row_scale: Factor on rows, after standardised values have been bounded.
    """
    rows = soft_clip(filled(readable(x), fill), lower, upper)
    rows = (rows - mean[:, None]) * factor[:, None]
    rows = rows.clamp(-MAX_STANDARDISED, MAX_STANDARDISED) * row_scale[:, None, None]
    return rows.to(x.dtype)


def readable(x: Float[Tensor, "b n m"]) -> Float[Tensor, "b n m"]:
    """The values in float64, at most `LARGEST` in size; missing ones become NaN or infinite."""
    if x.dtype != torch.float64:
        return x.double()
    return torch.where(x.isfinite(), x.clamp(-LARGEST, LARGEST), math.nan)


def filled(x: Float[Tensor, "b n m"], fill: Float[Tensor, "b m"]) -> Float[Tensor, "b n m"]:
    """The values, with those of `fill` in place of missing ones."""
    return x.where(x.isfinite(), fill[:, None])


def soft_clip(
    x: Float[Tensor, "b n m"], lower: Float[Tensor, "b m"], upper: Float[Tensor, "b m"]
) -> Float[Tensor, "b n m"]:
    """Let values exceed a bound by at most the logarithm of their size."""
    excess = x.abs().log1p()
    return torch.minimum(torch.maximum(x, lower[:, None] - excess), upper[:, None] + excess)
