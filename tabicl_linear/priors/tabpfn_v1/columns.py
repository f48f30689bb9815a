"""Columns of the TabPFN v1 prior: missing cells, ranks, outliers and scale.

Rows are the last dimension, `[c n]` for the columns of all tasks.
"""

import torch

from tabicl_linear.backends.cpp import random
from tabicl_linear.priors import draws
from tabicl_linear.priors.bins import argsort
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


def to_ranks(x: Float[Tensor, "c n"]) -> Float[Tensor, "c n"]:
    """Return the number of values in its column at most as large as each value; 0 for NaN."""
    if random.serves(x.device):
        return random.ranks(x)
    n = x.shape[-1]
    falling = x.nan_to_num(torch.inf, torch.inf, -torch.inf).neg_()
    order = argsort(falling)
    values = falling.gather(-1, order)
    # Ties share the rank of the first of them: the number of all values but those before it.
    place = torch.arange(n, device=x.device, dtype=x.dtype).repeat(x.shape[0], 1)
    later, is_new = place[:, 1:], torch.empty_like(place[:, 1:])
    later.mul_(torch.ne(values[:, 1:], values[:, :-1], out=is_new))
    ranks = n - place.cummax(-1).values
    is_there = torch.eq(x, x, out=values)
    return torch.empty_like(x).scatter_(-1, order, ranks).mul_(is_there)


def pull_in_outliers(x: Float[Tensor, "c n"]) -> Float[Tensor, "c n"]:
    """Soften values beyond 4 standard deviations, logarithmically; may change `x`.

    The bounds are computed twice, the second time without the values outside the first bounds: a
    column without such values stays as it is.
    """
    low, high = _bounds(x)
    is_inside = (x.amin(-1, keepdim=True) >= low) & (x.amax(-1, keepdim=True) <= high)
    rest = is_inside.squeeze(-1).logical_not_().nonzero().squeeze(-1)
    if not rest.shape[0]:
        return x
    y, low, high = x[rest], low[rest], high[rest]
    low, high = _bounds(torch.where((y < low) | (y > high), torch.nan, y))
    y = torch.maximum(y, low - y.abs().log1p())
    return x.index_copy_(0, rest, torch.minimum(y, high + y.abs().log1p()))


def standardise(x: Float[Tensor, "c n"]) -> Float[Tensor, "c n"]:
    """Return z-scores over all rows, clipped to +-100; NaN stays."""
    mean, std = _moments(x)
    return (x - mean).div_(std + SCALE_FLOOR).clamp_(-LARGEST, LARGEST)


def _moments(x: Float[Tensor, "c n"]) -> tuple[Float[Tensor, "c 1"], Float[Tensor, "c 1"]]:
    """Return mean and standard deviation (n - 1) of each column without its missing cells."""
    n = x.shape[-1]
    mean = x.mean(-1, keepdim=True)
    # A norm is vectorised, `std` is not.
    std = torch.linalg.vector_norm(x - mean, dim=-1, keepdim=True) * (n - 1) ** -0.5
    holed = mean.squeeze(-1).isnan().nonzero().squeeze(-1)
    if holed.shape[0]:
        y = x[holed]
        count = y.isnan().logical_not_().sum(-1, keepdim=True)
        mean[holed] = y.nansum(-1, keepdim=True) / count
        variance = (y - mean[holed]).square_().nansum(-1, keepdim=True) / (count - 1)
        std[holed] = variance.sqrt_()
    return mean, std


def _bounds(x: Float[Tensor, "c n"]) -> tuple[Float[Tensor, "c 1"], Float[Tensor, "c 1"]]:
    """Return mean - 4 std and mean + 4 std of each column."""
    mean, std = _moments(x)
    return mean - NUM_SIGMA * std, mean + NUM_SIGMA * std
