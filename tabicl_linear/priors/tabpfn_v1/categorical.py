"""Turns columns of the TabPFN v1 prior into categories."""

import numpy as np
import torch

from tabicl_linear.priors.bins import count_below
from tabicl_linear.priors.classes import randomise_ids
from tabicl_linear.types import Float, Tensor

ORDERED_PROBABILITY = 0.3


def categorise_(
    x: Float[Tensor, "b m n"],
    num_categories: np.ndarray,
    *,
    generator: torch.Generator,
    shared: bool = False,
) -> Float[Tensor, "b m n"]:
    """Cut columns at the values of random rows into `num_categories [b m]` (0: unchanged).

    Works in place. Category ids are permuted with probability 0.7, then reversed with probability
    0.5. A missing cell gets the category below all boundaries. With `shared` the boundary rows of a
    column are the same for all tasks.
    """
    b, m, n = x.shape
    columns = np.flatnonzero(num_categories)
    if not columns.size:
        return x
    count = num_categories.reshape(-1)[columns]
    falling = np.argsort(-count, kind="stable")
    columns, count = columns[falling], count[falling]
    index = torch.as_tensor(columns, device=x.device)
    size = (1 if shared else b, m, int(count[0]) - 1)
    rows = torch.randint(n, size, generator=generator, device=x.device)
    values = x.view(b * m, n)[index]
    boundaries = values.gather(1, rows.expand(b, -1, -1).flatten(0, 1)[index])
    codes = count_below(values, boundaries, count - 1)
    ordered = np.full(columns.size, ORDERED_PROBABILITY)
    codes = randomise_ids(codes, count, ordered, generator=generator).to(x.dtype)
    x.view(b * m, n).index_copy_(0, index, codes)
    return x
