"""Columns of the TabPFN v1 prior: missing cells, ranks, outliers and scale.

Columns have the layout `[b m n]`, rows last.
"""

import torch

from tabicl_linear.priors import draws
from tabicl_linear.types import Float, Tensor

NUM_SIGMA = 4.0
SCALE_FLOOR = 1e-6
LARGEST = 100.0


def drop_cells_(
    x: Float[Tensor, "b m n"], probability: Float[Tensor, " b"], generator: torch.Generator
) -> Float[Tensor, "b m n"]:
    """Set each cell of a task to NaN with the task's probability, in place."""
    mask = draws.uniform(*x.shape, generator=generator) < probability.view(-1, 1, 1)
    return x.masked_fill_(mask, torch.nan)


def to_ranks(x: Float[Tensor, "b m n"]) -> Float[Tensor, "b m n"]:
    """Return how many values of its column are at most as large as each value; 0 for NaN."""
    n = x.shape[-1]
    missing = x.isnan()
    values, index = torch.where(missing, torch.inf, x).sort(-1)
    # Equal values share the position of the last of them: the nearest end of a run to the right.
    ends = torch.arange(1, n + 1, device=x.device, dtype=x.dtype).expand(x.shape).clone()
    ends[..., :-1].masked_fill_(values[..., 1:] == values[..., :-1], n)
    ranks = ends.flip(-1).cummin(-1).values.flip(-1)
    return torch.empty_like(x).scatter_(-1, index, ranks).masked_fill_(missing, 0)


def pull_in_outliers(x: Float[Tensor, "b m n"]) -> Float[Tensor, "b m n"]:
    """Soften values beyond 4 standard deviations, logarithmically.

    The bounds are computed twice, the second time without what lies outside the first.
    """
    low, high = _bounds(x)
    low, high = _bounds(torch.where((x < low) | (x > high), torch.nan, x))
    x = torch.maximum(x, low - x.abs().log1p())
    return torch.minimum(x, high + x.abs().log1p())


def standardise(x: Float[Tensor, "... n"]) -> Float[Tensor, "... n"]:
    """Return z-scores over all rows, clipped to +-100; NaN stays."""
    mean, std = _moments(x)
    return ((x - mean) / (std + SCALE_FLOOR)).clamp_(-LARGEST, LARGEST)


def _moments(x: Float[Tensor, "... n"]) -> tuple[Float[Tensor, "... 1"], Float[Tensor, "... 1"]]:
    """Return mean and standard deviation (n - 1) of each column without its missing cells."""
    count = x.isnan().logical_not_().sum(-1, keepdim=True)
    mean = x.nansum(-1, keepdim=True) / count
    variance = (x - mean).square_().nansum(-1, keepdim=True) / (count - 1)
    return mean, variance.sqrt_()


def _bounds(x: Float[Tensor, "b m n"]) -> tuple[Float[Tensor, "b m 1"], Float[Tensor, "b m 1"]]:
    """Return mean - 4 std and mean + 4 std of each column."""
    mean, std = _moments(x)
    return mean - NUM_SIGMA * std, mean + NUM_SIGMA * std
