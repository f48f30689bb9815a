"""Ridge regressions of labels on chosen trees beside fixed features, solved in closed form.

What is solved is `tabicl_linear.ridge_inputs.solve` with one more kind of features, one-hot leaves.
Where rows are few, from products of rows, in float32: two rows have as many leaves in common as
there are trees in which they share one. Where they are many, from sums over rows, in float64.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.trees import shared_leaves
from tabicl_linear.ridge_inputs.solve import SMALLEST_VARIANCE, Part, RidgeSums, solve_sums
from tabicl_linear.types import Float, Int, Tensor

ROWS_OF_PRODUCTS = 320
SMALLEST_UNSEEN = 1e-4
"""A row of which less is left for others to explain is predicted by the class shares: rounding."""


class Solution(NamedTuple):
    """A regression with one penalty.

    Attributes:
        leaves: Weights of the leaves.
        fixed: Weights of the fixed features.
        offset: What is added.
        left_out: Predictions of the rows asked about, each from all others.
    """

    leaves: Float[Tensor, "l y"]
    fixed: Float[Tensor, "f y"]
    offset: Float[Tensor, " y"]
    left_out: Float[Tensor, "s y"]


class Regression(Protocol):
    """What can be solved with one penalty after the other."""

    def solve(self, penalty: float, deviation: float) -> Solution:
        """The solution.

        Args:
            penalty: In units of the variance of a row's features.
            deviation: Standard deviation of each kind of fixed features; that of the trees is one.
        """


class Rows(NamedTuple):
    """Rows as regressions take them.

    Attributes:
        leaves: Leaf of each tree.
        fixed: Fixed features, kind after kind.
        r: Labels, one-hot.
    """

    leaves: Int[Tensor, "n t"]
    fixed: Float[Tensor, "n f"]
    r: Float[Tensor, "n y"]


class OfRows:
    """A regression on as few rows as products of any two of them fit into memory.

    Args:
        rows: All its rows.
        num_leaves: Leaves of the trees.
        kinds: Where each kind of fixed features stands.
        asked: Indices of the rows asked about.
    """

    def __init__(
        self,
        rows: Rows,
        num_leaves: int,
        kinds: Sequence[slice],
        asked: Int[Tensor, " s"],
    ) -> None:
        is_other = torch.ones(len(rows.r), dtype=torch.bool, device=asked.device)
        is_other[asked] = False
        # Rows asked about come last: the corner of a factor is all that leaving them out takes.
        order = torch.cat([is_other.nonzero().squeeze(1), asked])
        rows = Rows(*(part[order.to(part.device)] for part in rows))
        self._rows, self._num_leaves, self._num_asked = rows, num_leaves, len(asked)
        self._num_kinds = len(kinds)
        products = chosen(shared_leaves)(rows.leaves)
        mean = products.mean(0)
        products.sub_(mean).sub_(mean.unsqueeze(1)).add_(mean.mean())
        self._leaf_factor = _reciprocal(products.diagonal().double().mean())
        self._of_leaves = products.mul_(self._leaf_factor)
        self._mean = rows.fixed.mean(0)
        self._fixed = rows.fixed - self._mean
        self._factor = torch.empty_like(self._mean)
        for kind in kinds:
            variance = self._fixed[:, kind].double().square().sum(1).mean()
            self._factor[kind] = _reciprocal(variance) ** 0.5
        self._fixed *= self._factor
        self._of_fixed = _products(self._fixed)

    def solve(self, penalty: float, deviation: float) -> Solution:
        """With A = (K + c I)^-1 residuals are c A R, and 1 - h_i = c A_ii - 1 / n."""
        leaves, r = self._rows.leaves, self._rows.r
        added = penalty * (1 + deviation**2 * self._num_kinds)
        shares = r.mean(0)
        products = torch.add(self._of_leaves, self._of_fixed, alpha=deviation**2)
        products.diagonal().add_(added)
        factor = torch.linalg.cholesky(products)
        dual = torch.cholesky_solve(r - shares, factor)
        first = len(r) - self._num_asked
        corner = torch.cholesky_inverse(factor[first:, first:])
        unseen = (added * corner.diagonal() - 1 / len(r)).unsqueeze(1)
        residuals = added * dual[first:] / unseen
        left_out = torch.where(unseen > SMALLEST_UNSEEN, r[first:] - residuals, shares)
        of_leaves = dual.new_zeros(self._num_leaves, dual.shape[1])
        for tree in leaves.unbind(1):
            of_leaves.index_add_(0, tree, dual)
        of_leaves *= self._leaf_factor
        of_fixed = (self._fixed.T @ dual) * self._factor.unsqueeze(1) * deviation**2
        counts = torch.bincount(leaves.flatten(), minlength=self._num_leaves).to(r.dtype)
        offset = shares - counts @ of_leaves / len(r) - self._mean @ of_fixed
        return Solution(of_leaves, of_fixed, offset, left_out)


class OfSums:
    """A regression on any number of rows, from sums over them.

    Args:
        chunks: All its rows.
        num_leaves: Leaves of the trees.
        kinds: Where each kind of fixed features stands.
        asked: The rows asked about.
    """

    def __init__(
        self, chunks: Iterable[Rows], num_leaves: int, kinds: Sequence[slice], asked: Rows
    ) -> None:
        self._num_leaves, self._kinds, self._asked = num_leaves, kinds, asked
        sums: RidgeSums | None = None
        for rows in chunks:
            more = _sums(rows, num_leaves)
            sums = more if sums is None else sums.plus(more)
        assert sums is not None, "a regression on no rows"
        self._sums = sums

    def solve(self, penalty: float, deviation: float) -> Solution:
        """Solved and asked as a context of fixed features is."""
        cut = self._num_leaves
        parts = [Part(slice(0, cut), 1.0)]
        parts += [Part(slice(cut + k.start, cut + k.stop), deviation) for k in self._kinds]
        solved = solve_sums(self._sums, parts, [penalty])
        weights, offset = (part[0, 0] for part in solved.regression.linear())
        asked = torch.cat([_one_hot(self._asked.leaves, cut), self._asked.fixed.double()], dim=1)
        left_out = solved.left_out(asked[None], self._asked.r.double()[None])[0, 0]
        return Solution(weights[:cut], weights[cut:], offset, left_out)


def _products(rows: Float[Tensor, "n f"]) -> Float[Tensor, "n n"]:
    """Of any two rows, up to the diagonal and somewhat beyond: factors need no more."""
    products = rows.new_zeros(len(rows), len(rows))
    for first in range(0, len(rows), ROWS_OF_PRODUCTS):
        last = first + ROWS_OF_PRODUCTS
        products[first:last, :last] = rows[first:last] @ rows[:last].T
    return products


def _sums(rows: Rows, num_leaves: int) -> RidgeSums:
    """Sums over some rows; those of leaves are counts of the few that each row has."""
    leaves, fixed, r = rows.leaves, rows.fixed.double(), rows.r.double()
    size = num_leaves + fixed.shape[1]
    gram = fixed.new_zeros(size, size)
    gram[:num_leaves, :num_leaves] = _together(leaves, num_leaves)
    beside = torch.cat([fixed, r, torch.ones_like(r[:, :1])], dim=1)
    total = beside.new_zeros(num_leaves, beside.shape[1])
    for tree in leaves.unbind(1):
        total.index_add_(0, tree, beside)
    of_fixed, of_labels, counts = total.split([fixed.shape[1], r.shape[1], 1], dim=1)
    gram[:num_leaves, num_leaves:] = of_fixed
    gram[num_leaves:, :num_leaves] = of_fixed.T
    gram[num_leaves:, num_leaves:] = fixed.T @ fixed
    return RidgeSums(
        len(r),
        torch.cat([counts[:, 0], fixed.sum(0)])[None],
        gram[None],
        torch.cat([of_labels, fixed.T @ r])[None],
        r.sum(0)[None],
    )


def _together(leaves: Int[Tensor, "n t"], num_leaves: int) -> Tensor:
    """How many rows any two leaves have in common."""
    n, t = leaves.shape
    places = np.arange(0, n * t + 1, t)
    ones = np.ones(n * t)
    table = csr_array((ones, leaves.cpu().numpy().ravel(), places), shape=(n, num_leaves))
    return torch.from_numpy((table.T @ table).toarray()).to(leaves.device)


def _one_hot(leaves: Int[Tensor, "n t"], num_leaves: int) -> Float[Tensor, "n l"]:
    found = torch.zeros(len(leaves), num_leaves, dtype=torch.float64, device=leaves.device)
    return found.scatter_(1, leaves.long(), 1.0)


def _reciprocal(variance: Tensor) -> float:
    """Zero where nothing varies."""
    return 1 / float(variance) if float(variance) > SMALLEST_VARIANCE else 0.0
