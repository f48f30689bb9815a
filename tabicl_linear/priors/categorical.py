"""Turns columns of the TabPFN v1 prior into categories."""

import numpy as np
import torch

from tabicl_linear.priors.classes import bin_by_boundaries, randomise_ids, rank_boundaries
from tabicl_linear.types import Float, Tensor

ORDERED_PROBABILITY = 0.3


def categorise_(
    x: Float[Tensor, "b m n"],
    num_categories: np.ndarray,
    *,
    generator: torch.Generator,
    shared: bool = False,
) -> Float[Tensor, "b m n"]:
    """Cut columns at the values of random rows into `num_categories [b m]` (0: left alone).

    In place. Category ids are permuted with probability 0.7, then reversed with probability 0.5. A
    missing cell takes part as a category: the one below all boundaries. With `shared` the boundary
    rows of a column are the same for all tasks.
    """
    b, m, n = x.shape
    columns = np.flatnonzero(num_categories)
    if not columns.size:
        return x
    count = num_categories.reshape(-1)[columns]
    index = torch.as_tensor(columns, device=x.device)
    size = (1 if shared else b, m, int(count.max()) - 1)
    rows = torch.randint(n, size, generator=generator, device=x.device)
    values = x.view(b * m, n)[index]
    boundaries = rank_boundaries(values, rows.expand(b, -1, -1).flatten(0, 1)[index], count)
    codes = bin_by_boundaries(values, boundaries)
    ordered = np.full(columns.size, ORDERED_PROBABILITY)
    x.view(b * m, n)[index] = randomise_ids(codes, count, ordered, generator=generator).to(x.dtype)
    return x
