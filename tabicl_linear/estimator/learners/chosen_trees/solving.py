"""Ridge regressions of labels on chosen trees beside fixed features, solved in closed form.

The equations are those of `tabicl_linear.ridge_inputs.solve` with one more kind of features:
one-hot leaves. Few rows are solved from the products of all pairs of rows, in float32; the product
of two rows' one-hot leaves is the number of trees in which they share a leaf. Many rows are solved
from sums over rows, in float64.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import add
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F

from tabicl_linear.estimator.learners.chosen_trees.trees import MANY_NUMBERS
from tabicl_linear.kernels.cholesky import factored_, solved
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.tree_growth import add_to_leaves_, count_pairs_, shared_leaves
from tabicl_linear.kernels.triangular import squared_lengths
from tabicl_linear.ridge_inputs.feature_sets import SMALLEST_VARIANCE, Part
from tabicl_linear.ridge_inputs.solve import System, without_own
from tabicl_linear.ridge_inputs.solved import assert_solved
from tabicl_linear.ridge_inputs.sums import Moments
from tabicl_linear.types import Float, Int, Tensor

ROWS_OF_PRODUCTS = 320
ROWS_COUNTED = 16_384
"""Rows whose pairs of leaves are counted together: few of all pairs occur in a chunk of rows."""
SMALLEST_UNSEEN = 1e-4
"""Smallest 1 - h_i of a row, h_i its leverage, that is more than rounding. The class shares predict
rows below it."""


class LeafRows(NamedTuple):
    """Rows as regressions take them: the leaf of each tree, fixed features, one-hot labels."""

    leaves: Int[Tensor, "n t"]
    fixed: Float[Tensor, "n f"]
    targets: Float[Tensor, "n y"]

    def first_fixed(self, count: int) -> "LeafRows":
        """The same rows with only the first `count` of their fixed features."""
        return self._replace(fixed=self.fixed[:, :count])


class LeafSums(NamedTuple):
    """Sums over rows, to which the sums over other rows can be added.

    Counts are integers, and all else is float64.

    Attributes:
        rows: Number of rows. Solutions count rows by their labels; saved states have this field.
        together: Number of rows that any two leaves have in common.
        of_leaves: Sums of fixed features and labels over the rows in each leaf.
        gram: Sum of products of fixed features.
        cross: Sum of their products with labels.
        fixed: Sum of fixed features.
        labels: Sum of labels.
    """

    rows: int
    together: Int[Tensor, "l l"]
    of_leaves: Float[Tensor, "l f+y"]
    gram: Float[Tensor, "f f"]
    cross: Float[Tensor, "f y"]
    fixed: Float[Tensor, " f"]
    labels: Float[Tensor, " y"]

    @classmethod
    def of(
        cls, chunks: Iterable[Sequence[LeafRows]], num_leaves: Sequence[int]
    ) -> list["LeafSums"]:
        """Sums over the rows of all chunks, for each of several forests.

        A chunk holds the same rows once for each forest. What does not depend on the forest is
        summed once, and is the same tensor in all sums. There must be at least one chunk.
        """
        num_rows, sums = 0, list[LeafSums]()
        uncounted: list[list[Tensor]] = [[] for _ in num_leaves]
        for of_forests in chunks:
            fixed, targets = of_forests[0].fixed.double(), of_forests[0].targets.double()
            sums = sums or [cls._of_no_rows(fixed, targets, count) for count in num_leaves]
            sums[0]._add_(fixed, targets)
            beside = torch.cat([fixed, targets], dim=1)
            for each, rows, leaves in zip(sums, of_forests, uncounted, strict=True):
                chosen(add_to_leaves_)(each.of_leaves, rows.leaves, beside)
                leaves.append(rows.leaves)
                if len(leaves) * len(rows.leaves) >= ROWS_COUNTED:
                    chosen(count_pairs_)(each.together, torch.cat(leaves))
                    leaves.clear()
            num_rows += len(targets)
        for each, leaves in zip(sums, uncounted, strict=True):
            if leaves:
                chosen(count_pairs_)(each.together, torch.cat(leaves))
            # Each pair was counted once, with the leaf of the earlier tree first.
            each.together.add_(each.together.triu(1).T)
        whole = sums[0]._replace(rows=num_rows)
        return [whole._replace(together=s.together, of_leaves=s.of_leaves) for s in sums]

    @classmethod
    def _of_no_rows(cls, fixed: Tensor, targets: Tensor, num_leaves: int) -> "LeafSums":
        f, y, zeros = fixed.shape[1], targets.shape[1], fixed.new_zeros
        together = zeros(num_leaves, num_leaves, dtype=torch.int32)
        of_rest = zeros(f, f), zeros(f, y), zeros(f), zeros(y)
        return cls(0, together, zeros(num_leaves, f + y), *of_rest)

    def _add_(self, fixed: Float[Tensor, "n f"], targets: Float[Tensor, "n y"]) -> None:
        """Add rows to what has no leaves, in place: new sums would take as long as the rows."""
        self.gram.addmm_(fixed.T, fixed)
        self.cross.addmm_(fixed.T, targets)
        self.fixed.add_(fixed.sum(0))
        self.labels.add_(targets.sum(0))

    def plus(self, other: "LeafSums") -> "LeafSums":
        """Sums over the rows of both."""
        return LeafSums(*map(add, self, other))

    def moments(self) -> Moments:
        """The centred moments that a regression is solved from: leaves, then fixed features."""
        num_fixed, num_leaves = len(self.gram), len(self.together)
        of_fixed, of_labels = self.of_leaves.split([num_fixed, len(self.labels)], dim=1)
        gram = self.gram.new_empty(2 * [num_leaves + num_fixed])
        gram[:num_leaves, :num_leaves] = self.together
        gram[:num_leaves, num_leaves:] = of_fixed
        gram[num_leaves:, :num_leaves] = of_fixed.T
        gram[num_leaves:, num_leaves:] = self.gram
        counts = self.together.diagonal().double()
        features, cross = torch.cat([counts, self.fixed]), torch.cat([of_labels, self.cross])
        return Moments.centred_(features[None], gram[None], cross[None], self.labels[None])


class Solution(NamedTuple):
    """A regression solved with one penalty: weights of leaves and fixed features, and offset."""

    leaves: Float[Tensor, "l y"]
    fixed: Float[Tensor, "f y"]
    offset: Float[Tensor, " y"]


class Linear(NamedTuple):
    """A linear predictor of shares: one solution, or the mean of all rounds and divisions.

    Attributes:
        leaves: Weights of the leaves of all trees.
        fixed: Weights of the fixed features of all rounds, side by side.
        left_out: Predictions of rows, each by solutions that have not seen it.
    """

    leaves: Float[Tensor, "l y"]
    fixed: Float[Tensor, "f y"]
    offset: Float[Tensor, " y"]
    left_out: Float[Tensor, "s y"]


class Trial(NamedTuple):
    """A regression with one penalty, solved as far as it takes to judge the penalty.

    Attributes:
        left_out: Predictions of the rows left out, each from all others.
        solution: Returns the weights. This takes as long again, and only few penalties need it.
    """

    left_out: Float[Tensor, "s y"]
    solution: Callable[[], Solution]


class Solvable(Protocol):
    """A regression that can be solved with one penalty after another."""

    def solve(self, penalty: float, deviation: float) -> Trial:
        """Solve it as far as is needed to judge a penalty; see `RowRegression.solve`."""


class RowRegression:
    """A regression on so few rows that the products of all pairs of them fit into memory.

    Args:
        rows: The rows to solve on.
        num_leaves: Leaves of all trees.
        kinds: The columns of each kind of fixed features.
        places: Indices of the rows to leave out, one at a time.

    Attributes:
        leaves: The leaves of the rows that are left out.
    """

    def __init__(
        self, rows: LeafRows, num_leaves: int, kinds: Sequence[slice], places: Int[Tensor, " s"]
    ) -> None:
        is_other = torch.ones(len(rows.targets), dtype=torch.bool, device=places.device)
        is_other[places] = False
        # Rows to leave out come last, so that only the last corner of a factor is needed for them.
        order = torch.cat([is_other.nonzero().squeeze(1), places])
        rows = LeafRows(*(part[order.to(part.device)] for part in rows))
        self._first = len(rows.targets) - len(places)
        self.leaves = rows.leaves[self._first :]
        self._targets, self._num_kinds = rows.targets, len(kinds)
        self._of_leaves, leaf_factor = _leaf_products(rows.leaves)
        mean = rows.fixed.mean(0)
        fixed = rows.fixed - mean
        factor = torch.empty_like(mean)
        for kind in kinds:
            variance = fixed[:, kind].double().square().sum(1).mean()
            factor[kind] = _reciprocal(variance) ** 0.5
        fixed *= factor
        self._of_fixed = _products(fixed)
        self._features = _DualFeatures(rows.leaves, num_leaves, leaf_factor, fixed, factor, mean)

    def solve(self, penalty: float, deviation: float) -> Trial:
        """Solve it as far as is needed to judge a penalty.

        The penalty is in units of the variance of a row's features; `deviation` is the standard
        deviation of each kind of fixed features, where that of the trees is one.

        With K [n n] the products of rows, R [n y] their labels less the class shares, c the penalty
        times that variance and A = (K + c I)^-1, the dual solution is A R.
        """
        added = penalty * (1 + deviation**2 * self._num_kinds)
        shares = self._targets.mean(0)
        products = torch.add(self._of_leaves, self._of_fixed, alpha=deviation**2)
        products.diagonal().add_(added)
        factor = factored_(products)
        dual = solved(factor[None, None], (self._targets - shares)[None])[0, 0]
        assert_solved([dual])
        left_out = self._left_out(factor, dual, shares, added)
        return Trial(left_out, partial(self._features.solution, dual, shares, deviation))

    def _left_out(
        self, factor: Float[Tensor, "n n"], dual: Float[Tensor, "n y"], shares: Tensor, added: float
    ) -> Float[Tensor, "s y"]:
        """Predictions of the last rows, each left out: labels less c (A R)_i / (1 - h_i).

        h_i is the leverage of row i, the part of its prediction that is its own label, and 1 - h_i
        is c A_ii - 1 / n.
        """
        last = slice(self._first, None)
        diagonal = chosen(squared_lengths)(factor[None, last, last])[0]
        unseen = (added * diagonal - 1 / len(dual)).unsqueeze(1)
        residuals = added * dual[last] / unseen
        return torch.where(unseen > SMALLEST_UNSEEN, self._targets[last] - residuals, shares)


class _DualFeatures(NamedTuple):
    """What the weights of a dual solution are computed from.

    A `Trial` holds these and lets go of the products of rows, which take more memory.

    Attributes:
        leaves: The leaf of each tree that each row falls into.
        leaf_factor: Square of what one-hot leaves are multiplied by.
        fixed: Fixed features, centred and scaled.
        factor: What the centred features were multiplied by.
        mean: The mean of the fixed features before they were centred.
    """

    leaves: Int[Tensor, "n t"]
    num_leaves: int
    leaf_factor: float
    fixed: Float[Tensor, "n f"]
    factor: Float[Tensor, " f"]
    mean: Float[Tensor, " f"]

    def solution(self, dual: Tensor, shares: Tensor, deviation: float) -> Solution:
        """The weights of the dual solution A R [n y]; see `RowRegression.solve`."""
        # The dual solution sums to zero up to rounding, which a small penalty magnifies. The rows
        # were centred before they were multiplied, but the leaves here are not: they see the sum.
        dual = dual - dual.mean(0)
        of_leaves = self._by_leaf(dual) * self.leaf_factor
        of_fixed = (self.fixed.T @ dual) * self.factor.unsqueeze(1) * deviation**2
        counts = torch.bincount(self.leaves.flatten(), minlength=self.num_leaves).to(dual.dtype)
        offset = shares - counts @ of_leaves / len(dual) - self.mean @ of_fixed
        return Solution(of_leaves, of_fixed, offset)

    def _by_leaf(self, dual: Float[Tensor, "n y"]) -> Float[Tensor, "l y"]:
        """Sums over the rows in each leaf."""
        num_classes = dual.shape[1]
        if num_classes > MANY_NUMBERS:
            sums = dual.new_zeros(self.num_leaves, num_classes)
            for tree in self.leaves.unbind(1):
                sums.index_add_(0, tree, dual)
            return sums
        # Class by class, since index_add_ makes a call for each row of several numbers.
        leaves = self.leaves.flatten()
        columns = [
            dual.new_zeros(self.num_leaves).index_add_(0, leaves, column)
            for column in dual.repeat_interleave(self.leaves.shape[1], 0).T.contiguous()
        ]
        return torch.stack(columns, dim=1)


class SumRegression:
    """A regression on any number of rows, from sums over them.

    Args:
        sums: Sums over all rows to solve on.
        kinds: The columns of each kind of fixed features. Kinds that the sums lack, which are the
            last ones, get no weight.
        rows: The rows to leave out, one at a time; the sums include them.

    Attributes:
        leaves: The leaves of the rows that are left out.
    """

    def __init__(self, sums: LeafSums, kinds: Sequence[slice], rows: LeafRows) -> None:
        num_fixed = len(sums.gram)
        self._num_leaves, self._num_without = len(sums.together), rows.fixed.shape[1] - num_fixed
        self._kinds = [kind for kind in kinds if kind.stop <= num_fixed]
        self._rows = rows.first_fixed(num_fixed)
        self._moments, self.leaves = sums.moments(), rows.leaves
        one_hot = rows.fixed.new_zeros(len(rows.leaves), self._num_leaves)
        one_hot.scatter_(1, rows.leaves.long(), 1.0)
        self._features = torch.cat([one_hot, self._rows.fixed], dim=1)
        self._systems = dict[float, System]()

    def solve(self, penalty: float, deviation: float) -> Trial:
        """Solve it with a penalty; see `RowRegression.solve` for both arguments."""
        rows, cut = self._rows, self._num_leaves
        regression = self._system(deviation).leaving_out_refined([penalty])
        weights, offset = (part[0, 0] for part in regression.regression.linear())
        assert_solved([weights])
        of_leaves, of_fixed = weights[:cut], weights[cut:]
        solution = Solution(of_leaves, F.pad(of_fixed, (0, 0, 0, self._num_without)), offset)
        predicted = F.embedding_bag(rows.leaves, of_leaves, mode="sum") + offset
        predicted += rows.fixed.to(weights) @ of_fixed
        leverage = regression.leverages(self._features[None])[0, 0]
        shares = self._moments.shares[0]
        left_out = without_own(predicted - shares, leverage, rows.targets.to(weights), shares)
        return Trial(left_out, lambda: solution)

    def _system(self, deviation: float) -> System:
        """The equations with this deviation, set up once for all penalties."""
        if deviation not in self._systems:
            cut = self._num_leaves
            parts = [Part(slice(cut + k.start, cut + k.stop), deviation) for k in self._kinds]
            self._systems[deviation] = System.of(self._moments, [Part(slice(0, cut), 1.0), *parts])
        return self._systems[deviation]


Regression = RowRegression | SumRegression
"""A regression on leaves and fixed features."""


def _leaf_products(leaves: Int[Tensor, "n t"]) -> tuple[Float[Tensor, "n n"], float]:
    """Products of centred one-hot leaves for all pairs of rows, at variance 1, and the scale."""
    products = chosen(shared_leaves)(leaves)
    mean = products.mean(0)
    products.sub_(mean).sub_(mean.unsqueeze(1)).add_(mean.mean())
    scale = _reciprocal(products.diagonal().double().mean())
    return products.mul_(scale), scale


def _products(rows: Float[Tensor, "n f"]) -> Float[Tensor, "n n"]:
    """Products of all pairs of rows, on and above the diagonal; factoring needs no others."""
    products = rows.new_zeros(len(rows), len(rows))
    for first in range(0, len(rows), ROWS_OF_PRODUCTS):
        last = first + ROWS_OF_PRODUCTS
        products[first:last, first:] = rows[first:last] @ rows[first:].T
    return products


def _reciprocal(variance: Tensor) -> float:
    """1 / variance, or 0 where nothing varies."""
    return 1 / float(variance) if float(variance) > SMALLEST_VARIANCE else 0.0
