"""A head that is solved: ridge regression in its dual form, with gradients through the solution.

As `tabicl_linear.ridge_inputs.solve`, whose factors are taken in place, with kinds of features of
which some are learned (differentiable closed-form heads, R2-D2: Bertinetto et al. 2019). With K the
products of the scaled features of context rows, A = (K + c I)^-1 and centred one-hot labels R:

    row i predicted from all others: r_i - c (A R)_i / (c A_ii - 1 / n)
    a query: share + k' A R, k its products with the context rows

The penalty is the one of least squared error on rows left out. The choice has no gradient.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tabicl_linear.types import Float, Tensor

PENALTIES = (0.01, 0.1, 1.0, 10.0)
SMALLEST_UNSEEN = 1e-6
"""A row of which less is left for others to explain is predicted by the class shares."""
SMALLEST_VARIANCE = 1e-6
"""Added to that of a kind of features, so that features that hardly vary stay small."""


class Kind(NamedTuple):
    """Features that are scaled together.

    Attributes:
        context: Of context rows.
        queries: Of other rows.
        deviation: Standard deviation that they are given together.
    """

    context: Float[Tensor, "b c f"]
    queries: Float[Tensor, "b q f"]
    deviation: float


class SolvedHead(NamedTuple):
    """Predicted class shares.

    Attributes:
        queries: Of the queries, with gradients.
        left_out: Of context rows, each from all others, without.
        penalty: Index of the penalty chosen for each task.
    """

    queries: Float[Tensor, "b q y"]
    left_out: Float[Tensor, "b c y"]
    penalty: Float[Tensor, " b"]


def solve_head(
    kinds: Sequence[Kind], r: Float[Tensor, "b c y"], penalties: Sequence[float] = PENALTIES
) -> SolvedHead:
    """Solve the head of each task on its context rows and predict the queries.

    Args:
        kinds: Features.
        r: One-hot labels of the context rows; the head is solved in their dtype.
        penalties: To choose from, in units of the variance of a row's features.

    Raises:
        torch.linalg.LinAlgError: There is no solution.
    """
    pairs = [_products(kind, r.dtype) for kind in kinds]
    of_context, of_queries = (torch.stack(parts).sum(0) for parts in zip(*pairs, strict=True))
    shares = r.mean(1, keepdim=True)
    added = r.new_tensor(penalties) * sum(kind.deviation**2 for kind in kinds)
    with torch.no_grad():
        every = torch.stack([_left_out(of_context, c.expand(len(r)), r) for c in added])
        best = (every - r).square().sum((-1, -2)).argmin(0)
    factor = torch.linalg.cholesky(_shifted(of_context, added[best]))
    dual = torch.cholesky_solve(r - shares, factor)
    left_out = every[best, torch.arange(len(best), device=best.device)]
    return SolvedHead(shares + of_queries @ dual, left_out, best)


def _products(kind: Kind, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of context rows with each other, and of queries with them."""
    context, queries = kind.context.to(dtype), kind.queries.to(dtype)
    mean = context.mean(1, keepdim=True)
    context = context - mean
    variance = context.square().mean(1).sum(-1) + SMALLEST_VARIANCE
    context = context * (kind.deviation * variance.rsqrt())[:, None, None]
    queries = (queries - mean) * (kind.deviation * variance.rsqrt())[:, None, None]
    return context @ context.mT, queries @ context.mT


def _shifted(products: Tensor, added: Tensor) -> Tensor:
    """Products with a number for each task added to the diagonal."""
    identity = torch.eye(products.shape[-1], dtype=products.dtype, device=products.device)
    return products + added[:, None, None] * identity


def _left_out(products: Tensor, added: Tensor, r: Tensor) -> Tensor:
    """Predictions of context rows, each from all others."""
    shares = r.mean(1, keepdim=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(_shifted(products, added)))
    residuals = added[:, None, None] * (inverse @ (r - shares))
    seen_by_none = added[:, None] * inverse.diagonal(dim1=-2, dim2=-1) - 1 / r.shape[1]
    unseen = seen_by_none.unsqueeze(-1)
    return torch.where(unseen > SMALLEST_UNSEEN, r - residuals / unseen, shares.expand_as(r))
