"""What a model learns about columns from the context alone, and how it is applied to rows.

Everything is a value of the fitted state, none of it a buffer of the model: two fitted states can
coexist. All of it runs batched over tasks, without a loop over tasks or columns.
"""

import math
from typing import NamedTuple

import torch

from tabicl_linear.types import Bool, Float, Int, Tensor

CLIP_SIGMAS = 4.0
"""Values further than this many standard deviations from the mean are drawn in."""
MAX_RAW_CATEGORIES = 10
"""Categorical columns with more distinct values than this are standardised like numbers."""
MAX_STANDARDISED = 100.0
"""Bound on standardised values."""


class ContextStatistics(NamedTuple):
    """Statistics of the context rows of each task.

    Attributes:
        categorical: Columns of category codes.
        categories: Their distinct context values in ascending order, padded with +inf; e is the
            largest number of categories, 0 where no column is categorical.
        fill: What replaces a missing value.
        lower: Soft clip bound; -inf for categorical columns.
        upper: Soft clip bound; +inf for categorical columns.
        mean: Subtracted from clipped values.
        factor: Multiplied onto centred values: 1 / standard deviation, 1 for raw category codes,
            0 for columns that are constant in the context and so carry no information.
        row_scale: sqrt(num_features / number of columns that are not constant), or one.
        mean_label: Mean context label, the value behind the label placeholder.
    """

    categorical: Bool[Tensor, "b m"]
    categories: Float[Tensor, "b m e"]
    fill: Float[Tensor, "b m"]
    lower: Float[Tensor, "b m"]
    upper: Float[Tensor, "b m"]
    mean: Float[Tensor, "b m"]
    factor: Float[Tensor, "b m"]
    row_scale: Float[Tensor, " b"]
    mean_label: Float[Tensor, " b"]


def context_statistics(
    x: Float[Tensor, "b c m"],
    y: Int[Tensor, "b c"],
    categorical: Bool[Tensor, "b m"],
    *,
    num_features: int | None,
) -> ContextStatistics:
    """Statistics of context rows (the authors' encoder; appendix B.2 leaves them open).

    Args:
        x: Context features; NaN and infinities are missing values.
        y: Context labels.
        categorical: Which columns hold category codes.
        num_features: Features that rows are scaled to; None leaves their scale.
    """
    categories = _categories(x, categorical)
    x = _encode(x, categorical, categories)
    finite = x.isfinite()
    x = x.where(finite, 0.0)
    fill = x.sum(1) / finite.sum(1).clamp(min=1)
    x = x.where(finite, fill[:, None])

    lower, upper = _clip_bounds(x)
    lower = lower.masked_fill(categorical, -math.inf)
    upper = upper.masked_fill(categorical, math.inf)
    constant = x.amax(1) == x.amin(1)

    clipped = _soft_clip(x, lower, upper)
    deviation, mean = torch.std_mean(clipped, dim=1, correction=min(1, x.shape[1] - 1))
    raw = categorical & (categories.isfinite().sum(-1) <= MAX_RAW_CATEGORIES)
    factor = deviation.where(~constant, 1.0).reciprocal().masked_fill(raw, 1.0)
    return ContextStatistics(
        categorical=categorical,
        categories=categories,
        fill=fill,
        lower=lower,
        upper=upper,
        mean=mean.masked_fill(raw, 0.0),
        factor=factor.masked_fill(constant, 0.0),
        row_scale=_row_scale(constant, num_features).to(x.dtype),
        mean_label=y.to(x.dtype).mean(1),
    )


def standardise(x: Float[Tensor, "b n m"], by: ContextStatistics) -> Float[Tensor, "b n m"]:
    """Encode, impute, clip, standardise and scale rows by the statistics of their context."""
    x = _encode(x, by.categorical, by.categories)
    x = x.where(x.isfinite(), by.fill[:, None])
    x = (_soft_clip(x, by.lower, by.upper) - by.mean[:, None]) * by.factor[:, None]
    return x.clamp(-MAX_STANDARDISED, MAX_STANDARDISED) * by.row_scale[:, None, None]


def _categories(
    x: Float[Tensor, "b c m"], categorical: Bool[Tensor, "b m"]
) -> Float[Tensor, "b m e"]:
    """Sorted distinct finite values of categorical columns, padded with +inf."""
    if not categorical.any():
        return x.new_empty(*categorical.shape, 0)
    values = x.where(x.isfinite() & categorical[:, None], math.inf)
    values = values.transpose(1, 2).sort(-1).values
    first = torch.ones_like(values, dtype=torch.bool)
    first[..., 1:] = values[..., 1:] != values[..., :-1]
    # Repeats become +inf too; sorting again moves all padding to the end.
    values = values.where(first, math.inf).sort(-1).values
    width = int(values.isfinite().sum(-1).max())
    return values[..., :width].contiguous()


def _encode(
    x: Float[Tensor, "b n m"],
    categorical: Bool[Tensor, "b m"],
    categories: Float[Tensor, "b m e"],
) -> Float[Tensor, "b n m"]:
    """Replace category values by their rank in the context; -1 for values unseen there."""
    if categories.shape[-1] == 0:
        return x
    columns = x.transpose(1, 2).contiguous()
    rank = torch.searchsorted(categories, columns).clamp(max=categories.shape[-1] - 1)
    known = categories.gather(-1, rank) == columns
    code = rank.to(x.dtype).where(known, -1.0).where(columns.isfinite(), math.nan)
    return code.where(categorical.unsqueeze(-1), columns).transpose(1, 2)


def _row_scale(constant: Bool[Tensor, "b m"], num_features: int | None) -> Float[Tensor, " b"]:
    used = (~constant).sum(1).clamp(min=1).double()
    return torch.ones_like(used) if num_features is None else (num_features / used).sqrt()


def _clip_bounds(x: Float[Tensor, "b c m"]) -> tuple[Tensor, Tensor]:
    """mean -+ 4 std of the values within mean -+ 4 std of all values."""
    if x.shape[1] == 1:
        return x[:, 0], x[:, 0]
    deviation, mean = torch.std_mean(x, dim=1)
    inside = (x - mean[:, None]).abs() <= CLIP_SIGMAS * deviation[:, None]
    count = inside.sum(1)
    mean = x.where(inside, 0.0).sum(1) / count.clamp(min=1)
    squares = (x - mean[:, None]).square().where(inside, 0.0).sum(1)
    deviation = (squares / (count - 1).clamp(min=1)).sqrt()
    return mean - CLIP_SIGMAS * deviation, mean + CLIP_SIGMAS * deviation


def _soft_clip(
    x: Float[Tensor, "b n m"], lower: Float[Tensor, "b m"], upper: Float[Tensor, "b m"]
) -> Float[Tensor, "b n m"]:
    """Let values beyond a bound pass it only by the logarithm of their size."""
    x = torch.maximum(x, lower[:, None] - x.abs().log1p())
    return torch.minimum(x, upper[:, None] + x.abs().log1p())
