"""Columns that are irrelevant to the label, or redundant. Rows are the last dimension."""

from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.bins import argsort
from tabicl_linear.priors.tabpfn_v1.columns import standardise
from tabicl_linear.types import Bool, Float, Tensor

MAX_IDENTIFIERS = 256
"""Most categories of an identifier; the estimator merges all rarer ones into one code anyway."""
TERMS = 3


class Counts(NamedTuple):
    """How many columns of each kind the tables of a batch get.

    Attributes:
        permuted: Copies of columns with their rows shuffled.
        noise: Normal noise.
        duplicate: Copies of columns.
        combined: Linear combinations of columns.
        identifier: Nominal columns of random categories.
    """

    permuted: int
    noise: int
    duplicate: int
    combined: int
    identifier: int


def draw_counts(
    rng: np.random.Generator,
    num_features: int,
    *,
    irrelevant: float,
    redundant: float,
    identifiers: float,
) -> Counts:
    """Draw how many of a table's columns are extra ones; at least one column is not.

    With the given probabilities, up to half of the columns are irrelevant, up to a third redundant,
    and one or two are identifiers.
    """
    left = num_features - 1
    counts = []
    for probability, most in (
        (irrelevant, (num_features + 1) // 2),
        (redundant, (num_features + 2) // 3),
        (identifiers, 2),
    ):
        happens = rng.uniform() < probability
        count = min(int(rng.integers(1, most, endpoint=True)), left) if happens else 0
        counts.append(count)
        left -= count
    permuted, duplicate = (int(rng.integers(count, endpoint=True)) for count in counts[:2])
    return Counts(permuted, counts[0] - permuted, duplicate, counts[1] - duplicate, counts[2])


def add_columns(
    x: Float[Tensor, "b m n"],
    categorical: Bool[Tensor, "b m"],
    counts: Counts,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "b k n"], Bool[Tensor, "b k"]]:
    """Add extra columns to each table, then shuffle its columns."""
    b, _, n = x.shape
    device = x.device
    copied, copied_kinds = _pick(x, categorical, counts.permuted + counts.duplicate, generator)
    order = argsort(draws.uniform(b, counts.permuted, n, generator=generator))
    copied[:, : counts.permuted] = copied[:, : counts.permuted].gather(2, order)
    noise = draws.normal(b, counts.noise, n, generator=generator)
    terms, _ = _pick(x, categorical, counts.combined * TERMS, generator)
    weights = draws.normal(b, counts.combined, TERMS, 1, generator=generator)
    terms = standardise(terms.flatten(0, 1)).view(b, counts.combined, TERMS, n)
    combined = standardise((terms * weights).sum(2).flatten(0, 1)).view(b, counts.combined, n)
    codes = draws.uniform(b, counts.identifier, n, generator=generator)
    codes = codes.mul_(min(n, MAX_IDENTIFIERS)).floor_()
    numeric = torch.zeros(b, counts.noise + counts.combined, dtype=torch.bool, device=device)
    nominal = torch.ones(b, counts.identifier, dtype=torch.bool, device=device)
    x = torch.cat([x, copied, noise, combined, codes], 1)
    categorical = torch.cat([categorical, copied_kinds, numeric, nominal], 1)
    order = argsort(draws.uniform(*categorical.shape, generator=generator))
    return x.gather(1, order.unsqueeze(2).expand_as(x)), categorical.gather(1, order)


def _pick(
    x: Float[Tensor, "b m n"],
    categorical: Bool[Tensor, "b m"],
    count: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "b k n"], Bool[Tensor, "b k"]]:
    """Copy `count` random columns of each table."""
    b, m, n = x.shape
    columns = torch.randint(m, (b, count), generator=generator, device=x.device)
    return x.gather(1, columns.unsqueeze(2).expand(-1, -1, n)), categorical.gather(1, columns)
