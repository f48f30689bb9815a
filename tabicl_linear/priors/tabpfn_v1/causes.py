"""Inputs of the random networks: normal causes, or a mixture of types."""

import numpy as np
import torch
from scipy.special import zeta

from tabicl_linear.priors import draws
from tabicl_linear.priors.bins import count_below
from tabicl_linear.types import Float, Tensor

MAX_LEVELS = 10
LARGEST_SKIP = 0.66


def draw_causes(
    is_mixed: np.ndarray,
    owner: np.ndarray,
    *,
    num_rows: int,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Float[Tensor, "k n"]:
    """Draw an input of task `owner[i]` for each `i`: N(0, 1), or of one of three types.

    The causes of the tasks in `is_mixed` are of mixed types: each is normal with probability
    `1 - p`; otherwise, with probability `1 - q`, a standardised categorical with 2 to 10 levels of
    random weights; otherwise a centred `min(Zipf(2 + 2 U), 10)`. `p` and `q` are uniform on
    [0, 0.66] for each task.
    """
    causes = draws.normal(len(owner), num_rows, generator=generator)
    not_normal, not_categorical = rng.uniform(0, LARGEST_SKIP, (2, len(is_mixed)))[:, owner]
    index = np.flatnonzero(is_mixed[owner] & (rng.uniform(size=len(owner)) < not_normal))
    if not index.size:
        return causes
    is_zipf = rng.uniform(size=index.size) < not_categorical[index]
    cumulative = np.where(
        is_zipf[:, None], _zipf_levels(rng, index.size), _random_levels(rng, index.size)
    )
    bounds = torch.as_tensor(cumulative[:, :-1], dtype=torch.float32, device=generator.device)
    levels = count_below(draws.uniform(index.size, num_rows, generator=generator), bounds)
    levels -= levels.mean(1, keepdim=True)
    std = torch.linalg.vector_norm(levels, dim=1, keepdim=True) * (num_rows - 1) ** -0.5
    keep_scale = torch.as_tensor(is_zipf, device=levels.device).unsqueeze(1)
    # A categorical of which only one level occurs has no scale: NaN, so that the draw is rejected.
    levels /= torch.where(keep_scale, 1.0, std)
    return causes.index_copy_(0, torch.as_tensor(index, device=levels.device), levels)


def _random_levels(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return cumulative probabilities `[count, 10]` of 2 to 10 levels with uniform weights."""
    is_level = np.arange(MAX_LEVELS) < rng.integers(2, MAX_LEVELS, count, endpoint=True)[:, None]
    weights = np.where(is_level, rng.uniform(size=(count, MAX_LEVELS)), 0.0)
    # Float32 rounding must not leave a gap above the last level that is used.
    cumulative = weights.cumsum(1) / weights.sum(1, keepdims=True)
    return np.where(is_level[:, 1:].sum(1, keepdims=True) > np.arange(MAX_LEVELS), cumulative, 2.0)


def _zipf_levels(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return cumulative probabilities `[count, 10]` of `min(Zipf(a), 10)`, a ~ U(2, 4)."""
    exponent = 2 + 2 * rng.uniform(size=(count, 1))
    probability = np.arange(1.0, MAX_LEVELS + 1) ** -exponent / zeta(exponent)
    return probability.cumsum(1)
