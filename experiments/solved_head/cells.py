"""Numbers that describe a cell to the network: its value, and what its column says of the classes.

What depends on the bin of a value alone is computed for each bin, not for each row.
"""

import math

import torch

from experiments.solved_head.class_statistics import BINS, CLASSES, ClassStatistics
from tabicl_linear.types import Bool, Float, Int, Tensor

CLIP = 8.0
"""Standardised values beyond this count as this."""
WAVES = (1.5, 3.0)
SMOOTHING = 1.5
"""Width of the weights by which bins of numbers borrow from their neighbours, in bins."""
FEW_ROWS = 4.0
"""A bin of so many rows counts half."""
OF_CLASS, OF_VALUE, OF_BIN, OF_COLUMN = 3, 4 + 2 * len(WAVES), 1, 5
NUMBERS = OF_CLASS * CLASSES + OF_VALUE + OF_BIN + OF_COLUMN


def cells(
    z: Float[Tensor, "b n m"],
    present: Bool[Tensor, "b n m"],
    categorical: Bool[Tensor, "b m"],
    seen: ClassStatistics,
    fold: Int[Tensor, "b n"] | None,
) -> Float[Tensor, "b n m i"]:
    """What the network is told of each cell, float32, of the order of one.

    Args:
        z: Standardised rows.
        present: Which cells are not missing.
        categorical: Columns of category codes.
        seen: What rows read (`ClassStatistics.seen`).
        fold: Folds of context rows; None for other rows.
    """
    b, n, m = z.shape
    last = seen.counts.shape[1] - 1
    read = fold if fold is not None else torch.full((b, n), last, device=z.device)
    bins = seen.bins(z, present)
    task = torch.arange(b, device=z.device)[:, None, None]
    column = torch.arange(m, device=z.device)
    of_bins = _of_bins(seen, categorical)[task, read.unsqueeze(-1), column, bins]
    columns = _of_columns(seen)
    task = task.squeeze(-1)
    return torch.cat(
        [
            of_bins,
            _likelihood(z, present, seen, read),
            _values(z, present, categorical, bins),
            columns[task, read],
        ],
        dim=-1,
    )


def _values(z: Tensor, present: Tensor, categorical: Tensor, bins: Tensor) -> Tensor:
    z = z.clamp(-CLIP, CLIP).float()
    small = z / (1 + z.abs() / 4)
    place = (bins.float() / BINS - 0.5).masked_fill(~present, 0.0)
    waves = [wave for w in WAVES for wave in ((w * z).sin(), (w * z).cos() - 1)]
    kinds = [categorical[:, None].expand_as(present).float(), (~present).float()]
    return torch.stack([small, place, *waves, *kinds], dim=-1)


def _rates(seen: ClassStatistics) -> tuple[Tensor, Tensor]:
    """Class shares of the rows read, and how many they are: `[b k 1 1 y]` and `[b k 1 1 1]`."""
    labels = seen.counts[:, :, :1].sum(3, keepdim=True)
    rows = labels.sum(-1, keepdim=True)
    return labels / rows.clamp(min=1), rows


def _of_bins(seen: ClassStatistics, categorical: Tensor) -> Tensor:
    """By how much the class shares in a bin, and in it and its neighbours, differ from all."""
    shares, _ = _rates(seen)
    counts = seen.counts
    smooth = torch.where(categorical[:, None, :, None, None], counts, _weights(counts) @ counts)
    rows = counts.sum(-1, keepdim=True)
    excess = 3.0 * (counts - rows * shares) / (rows + FEW_ROWS)
    around = smooth.sum(-1, keepdim=True)
    deviations = 0.5 * (smooth - around * shares)
    deviations /= (around * shares * (1 - shares) + 1).sqrt()
    size = counts.sum(-1, keepdim=True).log1p() / 4
    return torch.cat([excess, deviations.clamp(-4, 4), size], dim=-1).float()


def _weights(like: Tensor) -> Tensor:
    """Weights of neighbouring bins; missing values have none."""
    place = torch.arange(BINS + 1, dtype=like.dtype, device=like.device)
    weights = (-((place[:, None] - place) / SMOOTHING).square() / 2).exp()
    weights[BINS], weights[:, BINS] = 0.0, 0.0
    weights[BINS, BINS] = 1.0
    return weights


def _of_columns(seen: ClassStatistics) -> Tensor:
    """How much the column tells by chi squared, and how large the table is."""
    shares, rows = _rates(seen)
    counts = seen.counts
    size = counts.sum(-1, keepdim=True)
    expected = size * shares
    chi = ((counts - expected).square() / (expected + 0.5)).sum((-1, -2))
    freedom = ((size > 0).sum((-1, -2)) - 1) * ((shares > 0).sum((-1, -2, -3)) - 1).unsqueeze(-1)
    freedom = freedom.clamp(min=1)
    rows = rows[..., 0, 0].expand_as(chi)
    about = [
        (chi / rows.clamp(min=1)).sqrt(),
        ((chi - freedom) / (2 * freedom).sqrt() / 4).clamp(-2, 4),
        rows.log1p() / 6,
        torch.full_like(chi, math.log1p(counts.shape[2]) / 3),
        ((shares > 0).sum(-1) / CLASSES)[..., 0].expand_as(chi),
    ]
    return torch.stack(about, dim=-1).float()


def _likelihood(z: Tensor, present: Tensor, seen: ClassStatistics, read: Tensor) -> Tensor:
    """Logarithms of normal densities of each class over that of all rows, less for few rows."""
    counts = seen.counts[:, :, :, :BINS].sum(3)
    every = counts.sum(-1, keepdim=True)
    total = seen.sums.sum(-1, keepdim=True) / every.clamp(min=1).unsqueeze(-2)
    mean = total[..., 0, :]
    variance = (total[..., 1, :] - mean.square()).clamp(min=1e-4)
    rows = counts + FEW_ROWS
    own = seen.sums + FEW_ROWS * torch.stack([mean, variance + mean.square()], dim=-2)
    own_mean = own[..., 0, :] / rows
    own_variance = (own[..., 1, :] / rows - own_mean.square()).clamp(min=1e-4)
    trust = counts / rows
    task = torch.arange(len(z), device=z.device).unsqueeze(1)
    z = z.clamp(-CLIP, CLIP).unsqueeze(-1).float()
    parts = (mean, variance, own_mean, own_variance, trust)
    mean, variance, own_mean, own_variance, trust = (part.float()[task, read] for part in parts)
    ratio = (z - mean).square() / variance - (z - own_mean).square() / own_variance
    ratio = (ratio + (variance / own_variance).log()) / 2
    return (trust * ratio.clamp(-6, 3) / 2).masked_fill(~present.unsqueeze(-1), 0.0)
