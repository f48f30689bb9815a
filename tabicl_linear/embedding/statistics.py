"""Column statistics, computed from the context only, and their application to rows.

They are values in the fitted state, not buffers of the model, so that several fitted states can
coexist. Computations are batched over tasks, without a loop over tasks or columns, and run in
chunks of rows, so that the memory they need besides the table does not grow with the rows.

Statistics and the arithmetic with them are in float64 whatever the dtype of the table. In float32,
means over a million rows lose digits, and the deviation of values such as 1e6 + noise, or the range
of values such as 1e38, would be lost.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.standard_scores import filled, readable, soft_clip, standard_scores
from tabicl_linear.types import Bool, Float, Int, Tensor

CLIP_SIGMAS = 4.0
"""Values further than this many standard deviations from the mean are clipped softly."""
MAX_RAW_CATEGORIES = 10
"""Categorical columns with more distinct values than this are standardised like numbers."""


class ContextStatistics(NamedTuple):
    """Statistics of the context rows of each task.

    Attributes:
        categorical: Columns of category codes.
        categories: Distinct context values of categorical columns in ascending order, padded with
            +inf; e is the largest number of categories, 0 if no column is categorical.
        fill: The value that replaces a missing one.
        lower: Soft clip bound; -inf for categorical columns.
        upper: Soft clip bound; +inf for categorical columns.
        mean: The mean that is subtracted from clipped values.
        factor: Factor on centred values: 1 / standard deviation, 1 for raw category codes, 0 for
            columns that are constant in the context and so carry no information.
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
    categorical: Bool[Tensor, "b m"] | None,
    *,
    num_features: int | None,
    rows_per_chunk: int | None = None,
) -> ContextStatistics:
    """Statistics of context rows in float64.

    They are those of the authors' encoder, as appendix B.2 does not specify them. Four passes over
    the rows compute categories; means and extremes; clip bounds; and moments of the clipped values.

    Args:
        x: Context features; NaN and infinities are missing values.
        y: Context labels.
        categorical: Which columns hold category codes; None if none does.
        num_features: Number of features for the row scale; None for a scale of one.
        rows_per_chunk: Rows processed at a time; all if None. The result is the same up to
            rounding.
    """
    size = rows_per_chunk or x.shape[1]
    if categorical is None:
        categorical = torch.zeros(x.shape[0], x.shape[2], dtype=torch.bool, device=x.device)
    categories = _categories(x, categorical, size)

    def parts() -> Iterator[Tensor]:
        for rows in x.split(size, dim=1):
            yield _encode(readable(rows), categorical, categories)

    present = _moments((part, part.isfinite()) for part in parts())
    fill, num_rows = present.mean, present.square.new_full((), x.shape[1])
    # Missing values are filled with the mean: they add to the count, but not to the squares.
    deviation = _deviation(present.square, num_rows)
    inner = _moments(_inside(part, fill, CLIP_SIGMAS * deviation) for part in parts())
    reach = CLIP_SIGMAS * _deviation(inner.square, inner.rows)
    lower = (inner.mean - reach).masked_fill(categorical, -math.inf)
    upper = (inner.mean + reach).masked_fill(categorical, math.inf)
    clipped = _moments((soft_clip(filled(part, fill), lower, upper), None) for part in parts())
    deviation = _deviation(clipped.square, num_rows)
    # The second condition: a deviation that is zero in float64, whose reciprocal is infinite.
    constant = _is_constant(x.split(size, dim=1)) | (deviation == 0)
    raw = categorical & (categories.isfinite().sum(-1) <= MAX_RAW_CATEGORIES)
    factor = deviation.where(~constant, 1.0).reciprocal().masked_fill(raw, 1.0)
    return ContextStatistics(
        categorical=categorical,
        categories=categories,
        fill=fill,
        lower=lower,
        upper=upper,
        mean=clipped.mean.masked_fill(raw, 0.0),
        factor=factor.masked_fill(constant, 0.0),
        row_scale=_row_scale(constant, num_features),
        mean_label=y.sum(1).double() / y.shape[1],
    )


def standardise(x: Float[Tensor, "b n m"], by: ContextStatistics) -> Float[Tensor, "b n m"]:
    """Encode, impute, clip, standardise and scale rows by the statistics of their context.

    Computed in float64 and returned in the dtype of `x`.
    """
    has_categories = by.categories.shape[-1] > 0
    rows = _encode(readable(x), by.categorical, by.categories) if has_categories else x
    of_columns = by.fill, by.lower, by.upper, by.mean, by.factor
    return chosen(standard_scores)(rows, *of_columns, by.row_scale).to(x.dtype)


class _Moments(NamedTuple):
    """Moments of the selected values of each column; merged by the formula of Chan et al."""

    rows: Float[Tensor, "b m"]
    mean: Float[Tensor, "b m"]
    square: Float[Tensor, "b m"]  # sum of squared deviations from the mean


def _moments(parts: Iterable[tuple[Tensor, Tensor | None]]) -> _Moments:
    """Moments of the values that a mask selects (None: all), from (values, mask) of each chunk."""
    total: _Moments | None = None
    for x, used in parts:
        if used is None:
            rows = x.new_full((x.shape[0], x.shape[2]), x.shape[1])
            mean = x.mean(1)
            square = (x - mean[:, None]).square().sum(1)
        else:
            rows = used.sum(1).double()
            mean = x.where(used, 0.0).sum(1) / rows.clamp(min=1)
            square = (x - mean[:, None]).where(used, 0.0).square().sum(1)
        part = _Moments(rows, mean, square)
        total = part if total is None else _merged(total, part)
    assert total is not None, "statistics of no rows"
    return total


def _merged(a: _Moments, b: _Moments) -> _Moments:
    rows = a.rows + b.rows
    share, shift = b.rows / rows.clamp(min=1), b.mean - a.mean
    return _Moments(
        rows, a.mean + shift * share, a.square + b.square + shift.square() * a.rows * share
    )


def _is_constant(parts: Iterable[Tensor]) -> Bool[Tensor, "b m"]:
    """Columns with at most one distinct finite value."""
    lows, highs = [], []
    for x in parts:
        finite = x.isfinite()
        lows.append(x.where(finite, math.inf).amin(1))
        highs.append(x.where(finite, -math.inf).amax(1))
    return torch.stack(lows).amin(0) >= torch.stack(highs).amax(0)


def _deviation(square: Tensor, count: Tensor) -> Tensor:
    """Sample standard deviation; 0 for a single value."""
    deviation: Tensor = (square / (count - 1).clamp(min=1)).sqrt()
    return deviation


def _inside(x: Tensor, fill: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Imputed values, and which of them lie within `reach` of the mean."""
    x = filled(x, fill)
    return x, (x - fill[:, None]).abs() <= reach[:, None]


def _categories(
    x: Float[Tensor, "b c m"], categorical: Bool[Tensor, "b m"], size: int
) -> Float[Tensor, "b m e"]:
    """Sorted distinct finite values of categorical columns, padded with +inf."""
    if not categorical.any():
        return x.new_empty(*categorical.shape, 0, dtype=torch.float64)
    columns = categorical.any(0).nonzero().squeeze(1)
    mask = categorical[:, None, columns]
    union = x.new_empty(x.shape[0], len(columns), 0, dtype=torch.float64)
    start = 0
    while start < x.shape[1]:
        # Pieces grow with the number of categories so far, so that sorting takes n log n in total
        # even if nearly all codes are distinct.
        stop = start + max(size, union.shape[-1])
        values = readable(x[:, start:stop, columns])
        values = values.where(values.isfinite() & mask, math.inf).transpose(1, 2)
        union = _distinct(torch.cat([union, values], dim=-1))
        start = stop
    categories = union.new_full((*categorical.shape, union.shape[-1]), math.inf)
    return categories.index_copy(1, columns, union)


def _distinct(values: Float[Tensor, "b m t"]) -> Float[Tensor, "b m e"]:
    """Sorted finite values without repeats, padded with +inf."""
    values = values.sort(-1).values
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
    """Replace category values by their rank in the context; -1 for values not in it."""
    if categories.shape[-1] == 0:
        return x
    columns = x.transpose(1, 2).contiguous()
    rank = torch.searchsorted(categories, columns).clamp(max=categories.shape[-1] - 1)
    is_category = categories.gather(-1, rank) == columns
    code = rank.to(x.dtype).where(is_category, -1.0).where(columns.isfinite(), math.nan)
    return code.where(categorical.unsqueeze(-1), columns).transpose(1, 2)


def _row_scale(constant: Bool[Tensor, "b m"], num_features: int | None) -> Float[Tensor, " b"]:
    count = (~constant).sum(1).clamp(min=1).double()
    return torch.ones_like(count) if num_features is None else (num_features / count).sqrt()
