"""Columns of the tree prior: a Gaussian copula with marginals and categories of many kinds.

Rows are the last dimension, `[b m n]`.
"""

from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.bins import argsort
from tabicl_linear.priors.tabpfn_v1.columns import standardise
from tabicl_linear.priors.trees.hyperparameters import COPULAS, MARGINALS, ColumnParameters
from tabicl_linear.types import Float, Int, Tensor

NUM_FACTORS = 3
NUM_PARENTS = 2
REACH = 4.0
STEPS = 1024
"""Category boundaries are rounded to steps of `2 * REACH / STEPS` deviations."""


class Nominal(NamedTuple):
    """The nominal columns of all tasks.

    Attributes:
        column: Index into the columns of all tasks, `task * m + column`; ascending.
        codes: Category of each row, `0..k-1` in an arbitrary order.
        num_categories: k of each column.
    """

    column: Int[Tensor, " c"]
    codes: Int[Tensor, "c n"]
    num_categories: np.ndarray


def draw_columns(
    p: ColumnParameters, num_rows: int, generator: torch.Generator
) -> tuple[Float[Tensor, "b m n"], Nominal]:
    """Draw the columns of each task: numbers as z-scores, and the codes of nominal columns.

    All columns start as correlated normal numbers. A numeric column is a monotone function of
    its numbers; a nominal one cuts its numbers at the quantiles of its category shares and labels
    the categories at random. So nominal columns depend on the others, too.
    """
    z = _correlated(p, num_rows, generator)
    b, m, n = z.shape
    nominal = _categorise(z.view(b * m, n), p, generator)
    return _marginals(z, p).view(b, m, n), nominal


def _correlated(
    p: ColumnParameters, num_rows: int, generator: torch.Generator
) -> Float[Tensor, "b m n"]:
    """Draw normal numbers of deviation 1 with the copula of each task, or clusters of them."""
    b, m = p.marginal.shape
    device = generator.device
    separation = np.where(p.num_clusters > 1, p.separation, 0.0)
    scale = torch.as_tensor(separation, dtype=torch.float32, device=device).view(b, 1, 1)
    # A deviation of about 1 with clusters, too, as marginals and categories expect.
    shrink = (1 + scale.square()).rsqrt()
    mixing = _factors(p, generator) + _chain(p, generator)
    mixing *= shrink / torch.linalg.vector_norm(mixing, dim=2, keepdim=True)
    z = torch.bmm(mixing, draws.normal(b, m + NUM_FACTORS, num_rows, generator=generator))
    if scale.any():
        centres = draws.normal(b, m, int(p.num_clusters.max()), generator=generator)
        group = _draw_groups(p.num_clusters, num_rows, generator)
        z += (centres * scale * shrink).gather(2, group.unsqueeze(1).expand(-1, m, -1))
    return z


def _draw_groups(
    num_clusters: np.ndarray, num_rows: int, generator: torch.Generator
) -> Int[Tensor, "b n"]:
    """Draw the cluster of each row; clusters have different sizes."""
    b = len(num_clusters)
    count = torch.as_tensor(num_clusters, device=generator.device).unsqueeze(1)
    # Place u * (0.5 + v), with one v for each task; the last cluster takes what is above 1.
    place = draws.uniform(b, num_rows, generator=generator)
    place *= draws.uniform(b, 1, generator=generator) + 0.5
    return torch.minimum((place * count).long(), count - 1)


def _factors(p: ColumnParameters, generator: torch.Generator) -> Float[Tensor, "b m f"]:
    """Return mixing matrices for tasks whose columns share a few factors; zero for chains.

    A matrix maps independent numbers, one per column and then the factors, to correlated ones.
    Tasks with independent columns have loadings of zero.
    """
    b, m = p.marginal.shape
    device = generator.device
    is_chain = torch.as_tensor(p.copula == COPULAS.index("chain"), device=device)
    strength = np.where(p.copula == COPULAS.index("factors"), p.strength, 0.0)
    rho = torch.as_tensor(strength, dtype=torch.float32, device=device).view(b, 1, 1)
    loadings = draws.normal(b, m, NUM_FACTORS, generator=generator)
    loadings /= torch.linalg.vector_norm(loadings, dim=2, keepdim=True)
    own = torch.eye(m, device=device) * (1 - rho.square()).sqrt()
    return torch.cat([own, rho * loadings], 2).masked_fill_(is_chain.view(b, 1, 1), 0.0)


def _chain(p: ColumnParameters, generator: torch.Generator) -> Float[Tensor, "b m f"]:
    """Return mixing matrices for tasks whose columns depend on earlier ones; zero in other tasks.

    Column j is `r * (weighted earlier columns) + sqrt(1 - r^2) * noise`, with about `NUM_PARENTS`
    parents; the columns are then permuted.
    """
    b, m = p.marginal.shape
    device = generator.device
    is_chain = torch.as_tensor(p.copula == COPULAS.index("chain"), device=device).view(b, 1, 1)
    rho = torch.as_tensor(p.strength, dtype=torch.float32, device=device).view(b, 1, 1)
    weights = draws.normal(b, m, m, generator=generator).tril_(-1)
    parents = torch.arange(m, device=device).clamp_(min=1).view(m, 1)
    weights *= draws.uniform(b, m, m, generator=generator) < NUM_PARENTS / parents
    weights /= torch.linalg.vector_norm(weights, dim=2, keepdim=True).clamp_(min=1e-6)
    inverse = torch.linalg.solve_triangular(
        torch.eye(m, device=device) - rho * weights,
        ((1 - rho.square()).sqrt() * torch.eye(m, device=device)).contiguous(),
        upper=False,
        unitriangular=True,
    )
    order = argsort(draws.uniform(b, m, generator=generator))
    inverse = inverse.gather(1, order.unsqueeze(2).expand(-1, -1, m))
    unused = inverse.new_zeros(b, m, NUM_FACTORS)
    return torch.cat([inverse, unused], 2).mul_(is_chain)


def _marginals(z: Float[Tensor, "b m n"], p: ColumnParameters) -> Float[Tensor, "c n"]:
    """Return z-scores of a monotone function of each column."""
    n, device = z.shape[-1], z.device
    flat = z.reshape(-1, n)
    tail = torch.as_tensor(p.tail.reshape(-1, 1), dtype=z.dtype, device=device)
    levels = torch.as_tensor(p.num_levels.reshape(-1, 1), dtype=z.dtype, device=device)
    kind = np.where(p.num_categories > 0, -1, p.marginal).reshape(-1)
    functions = {
        "uniform": lambda x, c: _normal_cdf(x),
        "heavy": lambda x, c: torch.sinh(x * tail[c]),
        "skewed": lambda x, c: torch.exp(x * tail[c]),
        "ordinal": lambda x, c: (_normal_cdf(x) * levels[c]).floor_(),
    }
    for name, function in functions.items():
        columns = np.flatnonzero(kind == MARGINALS.index(name))
        if columns.size:
            index = torch.as_tensor(columns, device=device)
            flat.index_copy_(0, index, function(flat[index], index))
    return standardise(flat)


def _normal_cdf(x: Tensor) -> Tensor:
    # Twice as fast as `ndtr`, whose exact tails are not needed here.
    return torch.erf(x * 0.5**0.5).mul_(0.5).add_(0.5)


def _categorise(
    z: Float[Tensor, "c n"], p: ColumnParameters, generator: torch.Generator
) -> Nominal:
    """Cut nominal columns into categories with random shares and random codes."""
    device = z.device
    columns = np.flatnonzero(p.num_categories)
    count = p.num_categories.reshape(-1)[columns]
    index = torch.as_tensor(columns, device=device)
    if not columns.size:
        return Nominal(index, index.new_zeros(0, z.shape[1]), count)
    largest = int(count.max())
    skew = torch.as_tensor(p.skew.reshape(-1)[columns], dtype=z.dtype, device=device).unsqueeze(1)
    k = torch.as_tensor(count, device=device).unsqueeze(1)
    unused = torch.arange(largest, device=device) >= k
    weights = draws.normal(len(count), largest, generator=generator).mul_(skew).exp_()
    shares = weights.masked_fill_(unused, 0.0).cumsum(1)
    # A lookup table from quantiles to codes, since a search for every row takes longer.
    centre = (torch.arange(STEPS, device=device) + 0.5) / STEPS * 2 - 1
    quantile = torch.special.ndtr(centre * REACH).expand(len(k), -1).contiguous()
    rank = torch.searchsorted(shares / shares[:, -1:], quantile)
    keys = draws.uniform(len(count), largest, generator=generator).masked_fill_(unused, 2.0)
    table = argsort(keys).gather(1, torch.minimum(rank, k - 1))
    place = (z[index] * (STEPS / 2 / REACH)).add_(STEPS / 2).long().clamp_(0, STEPS - 1)
    return Nominal(index, table.gather(1, place), count)
