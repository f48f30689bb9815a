"""Bins of token positions and means over tasks, for profiles of gates and contributions."""

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from tabicl_linear.errors import DataError
from tabicl_linear.types import Float, Tensor


def bin_edges(length: int, num_bins: int | None) -> npt.NDArray[np.int64]:
    """Edges of bins of positions, evenly spaced on a logarithmic scale.

    Args:
        length: Number of positions.
        num_bins: Most bins; if None, one for every position.

    Returns:
        Increasing positions from 0 to `length`; bin i is from edge i to before edge i + 1.

    Raises:
        DataError: `num_bins` is below 1.
    """
    if num_bins is None or num_bins >= length:
        return np.arange(length + 1)
    if num_bins < 1:
        raise DataError(f"num_bins={num_bins}: give at least one bin, or None for one per token.")
    edges = np.geomspace(1, length + 1, num_bins + 1).round().astype(np.int64) - 1
    return np.unique(edges)


def means_of_bins(z: Float[Tensor, "b t"], edges: npt.NDArray[np.int64]) -> Float[Tensor, "b i"]:
    """Means over the positions of every bin."""
    sums = torch.nn.functional.pad(z.double().cumsum(1), (1, 0))
    at = torch.as_tensor(edges, device=z.device)
    return sums[:, at].diff(dim=1) / at.diff()


def interval(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    """Mean over the first axis, and the limits of its 95 % interval by Student's t.

    Args:
        values: Observations along the first axis. If there is only one, the limits are NaN.
    """
    mean, count = values.mean(0), len(values)
    if count < 2:
        unknown = np.full_like(mean, np.nan)
        return mean, unknown, unknown
    half = stats.t.ppf(0.975, count - 1) * values.std(0, ddof=1) / count**0.5
    return mean, mean - half, mean + half
