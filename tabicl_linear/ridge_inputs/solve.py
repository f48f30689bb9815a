"""Ridge regression of one-hot labels on features of rows.

With features f, centred by their mean and scaled so that those of each kind together have the
standard deviation that the set gives them, and one-hot labels r, centred by the class shares:

    W = (F'F + c I)^-1 F'R = F'(FF' + c I)^-1 R,    c = penalty * variance of a row's features
    h_i = f_i'(F'F + c I)^-1 f_i + 1 / n
    row i predicted from the others: share + (f_i'W - h_i r_i) / (1 - h_i)

The last line is exact: it is what a solution on all rows but i, under the same scaling, predicts.
Contexts of more rows than features are solved from sums over their rows, shorter ones from products
of their rows. Factors are float64: Cholesky of sums over long contexts needs it.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from tabicl_linear.embedding.constants import constants
from tabicl_linear.kernels.cholesky import factored_, shifted, shifted_solutions, solved
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.triangular import squared_lengths
from tabicl_linear.ridge_inputs.devices import has_slow_float64
from tabicl_linear.ridge_inputs.mixed_precision import exact, refined
from tabicl_linear.ridge_inputs.solved import assert_solved
from tabicl_linear.types import Float, Int, Tensor

LARGEST_LEVERAGE = 1 - 1e-6
"""Beyond it rounding decides, and a row all by itself is predicted by the class shares.

A lower bound on 1 - h would let rows see their own labels: short contexts have h of 0.99 and more.
"""
SURE_LEVERAGE = 0.5
"""Up to here float32 is enough: 1 - h is off by 2e-4 of itself with a million rows."""
SMALLEST_VARIANCE = 1e-12
"""Of all features of a kind together; less is rounding."""


class Part(NamedTuple):
    """One kind of features in a set.

    Attributes:
        place: Where they stand among all features.
        deviation: Standard deviation that they are given together.
    """

    place: slice
    deviation: float

    @property
    def size(self) -> int:
        """How many features."""
        return int(self.place.stop - self.place.start)


FeatureSet = Sequence[Part]
"""The features of one regression."""


def of_set(features: Float[Tensor, "b *n f"], feature_set: FeatureSet) -> Float[Tensor, "b *n s"]:
    """The features of a set among all, without a copy where they stand side by side.

    By slices and never by an index, which would have to get to the device first.
    """
    places = [part.place for part in feature_set]
    if all(one.stop == other.start for one, other in pairwise(places)):
        return features[..., places[0].start : places[-1].stop]
    return torch.cat([features[..., place] for place in places], dim=-1)


class RidgeSums(NamedTuple):
    """Sums over the rows of a context; those of two contexts add.

    Attributes:
        rows: How many rows.
        features: Sum of f.
        gram: Sum of f f'.
        cross: Sum of f r', r one-hot.
        labels: Sum of r.
    """

    rows: int
    features: Float[Tensor, "b f"]
    gram: Float[Tensor, "b f f"]
    cross: Float[Tensor, "b f y"]
    labels: Float[Tensor, "b y"]

    @classmethod
    def of(cls, features: Float[Tensor, "b n f"], targets: Float[Tensor, "b n y"]) -> "RidgeSums":
        """Sums over these rows, in float64 whatever the dtype of `features`.

        Products of float32 are off by about 1e-7 for every row: tens of thousands of rows of equal
        or constant features outgrow the penalty, and nothing positive definite is left.
        """
        features, targets = features.double(), targets.double()
        return cls(
            features.shape[1],
            features.sum(1),
            _symmetric_products(features),
            features.transpose(1, 2) @ targets,
            targets.sum(1),
        )

    def plus(self, other: "RidgeSums") -> "RidgeSums":
        """Sums over the rows of both."""
        return RidgeSums(
            self.rows + other.rows,
            self.features + other.features,
            self.gram + other.gram,
            self.cross + other.cross,
            self.labels + other.labels,
        )


class Regression(NamedTuple):
    """The regression on one set of features, solved for some penalties.

    Attributes:
        mean: Mean of each feature.
        scale: What centred features are multiplied by.
        shares: Class shares.
        weights: Solutions W, one for each penalty.
    """

    mean: Float[Tensor, "b f"]
    scale: Float[Tensor, "b f"]
    shares: Float[Tensor, "b y"]
    weights: Float[Tensor, "p b f y"]

    def choose(self, penalty: Int[Tensor, " b"]) -> "Regression":
        """The regression with one penalty for each task, given by its index."""
        return self._replace(weights=_chosen(self.weights, penalty))

    def linear(self) -> tuple[Float[Tensor, "p b f y"], Float[Tensor, "p b y"]]:
        """Weights of plain features, and what is added."""
        weights = self.weights * self.scale.unsqueeze(-1)
        return weights, self.shares - (self.mean[:, None] @ weights).squeeze(-2)


class Moments(NamedTuple):
    """Centred sums over the rows of contexts, which may differ in length.

    Attributes:
        rows: How many rows.
        mean: Mean of each feature.
        shares: Class shares.
        gram: Sum of (f - mean) (f - mean)'.
        cross: Sum of (f - mean) (r - shares)'.
    """

    rows: Float[Tensor, "b 1"]
    mean: Float[Tensor, "b f"]
    shares: Float[Tensor, "b y"]
    gram: Float[Tensor, "b f f"]
    cross: Float[Tensor, "b f y"]

    @classmethod
    def of(cls, sums: Sequence[RidgeSums]) -> "Moments":
        """Those of contexts of the same tasks, all tasks of the first context first."""
        _, *parts = zip(*sums, strict=True)
        features, gram, cross, labels = (torch.cat(part) for part in parts)
        rows = labels.sum(-1, keepdim=True)
        mean, shares = features / rows, labels / rows
        column = (rows * mean).unsqueeze(-1)
        gram = gram - column * mean[:, None]
        return cls(rows, mean, shares, gram, cross - column * shares[:, None])


class OfSums(NamedTuple):
    """A regression that was solved from sums, of which any row can be left out.

    Attributes:
        regression: On all rows.
        rows: How many.
        factors: Lower Cholesky factors of F'F + c I, one for each penalty.
    """

    regression: Regression
    rows: Float[Tensor, "b 1"]
    factors: Float[Tensor, "p b f f"]

    def left_out(
        self, features: Float[Tensor, "b n f"], targets: Float[Tensor, "b n y"]
    ) -> Float[Tensor, "p b n y"]:
        """Predictions of context rows, each from all others, from their features and labels."""
        features = self._scaled(features, self.rows.dtype)
        leverage = self._leverage(features, self.factors)
        # Weights side by side: features would be copied for each penalty otherwise.
        predicted = torch.einsum("bnf,pbfy->pbny", features, self.regression.weights)
        return without_own(predicted, leverage, targets, self.regression.shares[:, None])

    def leverages(self, features: Float[Tensor, "b n f"]) -> Float[Tensor, "p b n 1"]:
        """How much context rows weigh in their own predictions.

        In the dtype of the features, and anew in float64 where it is above `SURE_LEVERAGE`: there
        an error of float32 would let a row see its own label. Leverages of all rows together are
        fewer than the features, so that rows above it are few.
        """
        scaled = self._scaled(features, features.dtype)
        leverage = self._leverage(scaled, self.factors.to(features.dtype)).to(self.rows.dtype)
        high = (leverage > SURE_LEVERAGE).squeeze(-1).flatten(0, 1).any(0).nonzero().squeeze(-1)
        again = self._scaled(features[:, high], self.rows.dtype)
        return leverage.index_copy(2, high, self._leverage(again, self.factors))

    def _scaled(self, features: Float[Tensor, "b n f"], dtype: torch.dtype) -> Tensor:
        mean, scale, *_ = self.regression
        # First a copy: operations on both dtypes take twice as long.
        features = features.to(dtype, copy=True)
        return features.sub_(mean[:, None].to(dtype)).mul_(scale[:, None].to(dtype))

    def _leverage(
        self, features: Float[Tensor, "b n f"], factors: Float[Tensor, "p b f f"]
    ) -> Float[Tensor, "p b n 1"]:
        own = (1 / self.rows.unsqueeze(-1)).to(factors.dtype)
        return _squared_lengths(factors, features.transpose(1, 2)) + own

    def choose(self, penalty: Int[Tensor, " b"]) -> "OfSums":
        """The regression with one penalty for each task, given by its index."""
        regression, factors = self.regression.choose(penalty), _chosen(self.factors, penalty)
        return OfSums(regression, self.rows, factors)


def without_own(
    predicted: Float[Tensor, "*p y"],
    leverage: Float[Tensor, "*p 1"],
    targets: Float[Tensor, "... y"],
    shares: Float[Tensor, "... y"],
) -> Float[Tensor, "*p y"]:
    """Shares that other rows predict of a row, from what it adds to `shares` among them."""
    change = (predicted - leverage * (targets - shares)) / (1 - leverage)
    return shares + change.masked_fill(leverage > LARGEST_LEVERAGE, 0.0)


def solve_sums(sums: RidgeSums, feature_set: FeatureSet, penalties: Sequence[float]) -> OfSums:
    """Solve for one set from sums over all features.

    Raises:
        torch.linalg.LinAlgError: There is no solution.
    """
    solution = solve_moments(Moments.of([sums]), feature_set, penalties)
    assert_solved([solution.regression.weights])
    return solution


def solve_moments(moments: Moments, feature_set: FeatureSet, penalties: Sequence[float]) -> OfSums:
    """Solve for one set, so that rows can be left out; NaN where there is no solution.

    In float64 on every device: each row that is left out takes as many operations as a refinement
    of its leverage from float32 would.
    """
    system = _System.of(moments, feature_set, penalties)
    factors = factored_(shifted(system.gram, system.added))
    regression = system.regression(moments, solved(factors, system.cross))
    return OfSums(regression, moments.rows, factors)


def solve_weights(
    moments: Moments, feature_set: FeatureSet, penalties: Sequence[float]
) -> Regression:
    """Solve for one set, where no row is left out; NaN where there is no solution.

    On devices with slow float64 by refinement of solutions in float32 (`refined`).
    """
    system = _System.of(moments, feature_set, penalties)
    solver = refined if has_slow_float64(system.gram.device) else exact
    return system.regression(moments, solver(system.gram, system.added, system.cross))


class _System(NamedTuple):
    """The equations of one set: (gram + c I) W = cross for every c.

    Attributes:
        mean: Mean of each feature of the set.
        scale: What centred features are multiplied by.
        gram: Sum of products of the scaled features.
        cross: Sum of their products with labels.
        added: c, one for each penalty.
    """

    mean: Float[Tensor, "b k"]
    scale: Float[Tensor, "b k"]
    gram: Float[Tensor, "b k k"]
    cross: Float[Tensor, "b k y"]
    added: Float[Tensor, "p 1"]

    @classmethod
    def of(cls, moments: Moments, feature_set: FeatureSet, penalties: Sequence[float]) -> "_System":
        mean = of_set(moments.mean, feature_set)
        gram = of_set(of_set(moments.gram.mT, feature_set).mT, feature_set)
        scale = _scale(gram.diagonal(dim1=-2, dim2=-1) / moments.rows, feature_set)
        cross = of_set(moments.cross.mT, feature_set).mT * scale.unsqueeze(-1)
        gram = (gram * scale.unsqueeze(-1)).mul_(scale[:, None])
        return cls(mean, scale, gram, cross, _added(penalties, feature_set, gram))

    def regression(self, moments: Moments, weights: Float[Tensor, "p b k y"]) -> Regression:
        return Regression(self.mean, self.scale, moments.shares, weights)


class OfRows(NamedTuple):
    """Regressions that were solved from the rows themselves: their weights are sums over them.

    Attributes:
        features: All features of the rows, centred.
        mean: Mean of each feature.
        shares: Class shares.
        sets: What each regression takes of the features.
        scales: What each multiplies its features by.
        dual: (FF' + c I)^-1 R of each set and penalty.
        left_out: Predictions of the rows, each from all others; NaN where there is no solution.
    """

    features: Float[Tensor, "b c f"]
    mean: Float[Tensor, "b f"]
    shares: Float[Tensor, "b y"]
    sets: Sequence[FeatureSet]
    scales: Sequence[Float[Tensor, "b _s"]]
    dual: Float[Tensor, "s p b c y"]
    left_out: Float[Tensor, "s p b c y"]

    def choose(self, penalties: Int[Tensor, "s b"]) -> list[Regression]:
        """The regression on each set with one penalty for each task, given by its index."""
        dual = chosen_penalties(self.dual, penalties)  # [s b c y]
        # One product for all sets, most of which take all features. Transposed it is faster.
        weights = dual.permute(1, 0, 3, 2).flatten(1, 2) @ self.features
        of_sets = weights.unflatten(1, (len(dual), -1)).unbind(1)  # [b y f] each
        regressions = []
        for each, scale, part in zip(of_sets, self.scales, self.sets, strict=True):
            scaled = (of_set(each, part) * scale[:, None]).mT
            regressions.append(
                Regression(of_set(self.mean, part), scale, self.shares, scaled[None])
            )
        return regressions


def solve_rows(
    features: Float[Tensor, "b c f"],
    targets: Float[Tensor, "b c y"],
    sets: Sequence[FeatureSet],
    penalties: Sequence[float],
) -> OfRows:
    """Solve for each set from the rows themselves: all their features and their one-hot labels.

    With A = (FF' + c I)^-1 the residuals of all rows are c A R, and 1 - h_i = c A_ii - 1 / n.
    """
    rows = _Rows.of(features, sets)
    shares = targets.mean(1)
    each = [rows.solve(targets, shares, feature_set, penalties) for feature_set in sets]
    scales, *parts = zip(*each, strict=True)
    return OfRows(rows.features, rows.mean, shares, sets, scales, *map(torch.stack, parts))


class _Rows(NamedTuple):
    """What regressions on the same rows have in common: a set only scales whole kinds.

    Attributes:
        features: Centred.
        mean: Of each feature.
        products: Of the rows with each other, of every kind (by where it starts and ends).
    """

    features: Float[Tensor, "b c f"]
    mean: Float[Tensor, "b f"]
    products: Mapping[tuple[int, int], Float[Tensor, "b c c"]]

    @classmethod
    def of(cls, features: Float[Tensor, "b c f"], sets: Sequence[FeatureSet]) -> "_Rows":
        features = features.to(torch.float64, copy=True)
        mean = features.mean(1)
        features.sub_(mean[:, None])
        places = {
            (part.place.start, part.place.stop) for feature_set in sets for part in feature_set
        }
        kinds = {place: features[..., slice(*place)] for place in places}
        products = {place: kind @ kind.transpose(1, 2) for place, kind in kinds.items()}
        return cls(features, mean, products)

    def solve(
        self,
        targets: Float[Tensor, "b c y"],
        shares: Float[Tensor, "b y"],
        feature_set: FeatureSet,
        penalties: Sequence[float],
    ) -> tuple[Float[Tensor, "b s"], Float[Tensor, "p b c y"], Float[Tensor, "p b c y"]]:
        """Scale, dual solutions and predictions of the rows, each from all others."""
        scale, gram = self._scaled(feature_set)
        added = _added(penalties, feature_set, gram)
        dual, diagonal = chosen(shifted_solutions)(gram, added, targets - shares[:, None])
        rest = added.view(-1, 1, 1, 1)
        unseen = rest * diagonal.unsqueeze(-1) - 1 / self.features.shape[1]
        left_out = torch.where(
            unseen < 1 - LARGEST_LEVERAGE, shares[:, None], targets - rest * dual / unseen
        )
        return scale, dual, left_out

    def _scaled(
        self, feature_set: FeatureSet
    ) -> tuple[Float[Tensor, "b s"], Float[Tensor, "b c c"]]:
        """What features are multiplied by, all of a kind alike, and products of the scaled rows."""
        tasks, rows, _ = self.features.shape
        gram, scales = self.features.new_zeros(tasks, rows, rows), []
        for part in feature_set:
            product = self.products[part.place.start, part.place.stop]
            # The variances of all features of a kind together are those of its rows.
            variance = product.diagonal(dim1=1, dim2=2).sum(-1, keepdim=True) / rows
            factor = _factor(variance, part)
            gram.addcmul_(product, factor.square().unsqueeze(-1))
            scales.append(factor.expand(-1, part.size))
        return torch.cat(scales, dim=-1), gram


def _scale(variance: Float[Tensor, "b f"], feature_set: FeatureSet) -> Float[Tensor, "b f"]:
    """Factors that give each kind of features its standard deviation; zero where none varies."""
    parts = variance.clamp(min=0).split([part.size for part in feature_set], dim=-1)
    pairs = zip(parts, feature_set, strict=True)
    factors = [_factor(each.sum(-1, keepdim=True), part).expand_as(each) for each, part in pairs]
    return torch.cat(factors, dim=-1)


def _factor(variance: Float[Tensor, "b 1"], part: Part) -> Float[Tensor, "b 1"]:
    """What gives a kind its standard deviation, from the variances of its features together."""
    return torch.where(variance > SMALLEST_VARIANCE, part.deviation * variance.rsqrt(), 0.0)


def _added(
    penalties: Sequence[float], feature_set: FeatureSet, like: Tensor
) -> Float[Tensor, "p 1"]:
    variance = sum(part.deviation**2 for part in feature_set)
    return constants(tuple(penalties), like).unsqueeze(-1) * variance


def _symmetric_products(features: Float[Tensor, "b n f"]) -> Float[Tensor, "b f f"]:
    """F'F, each half of its columns with those from there on; the rest is the same by symmetry."""
    ft, middle = features.transpose(1, 2), features.shape[2] // 2
    products = features.new_empty(len(features), features.shape[2], features.shape[2])
    products[:, :middle] = ft[:, :middle] @ features
    products[:, middle:, :middle] = products[:, :middle, middle:].transpose(1, 2)
    products[:, middle:, middle:] = ft[:, middle:] @ features[..., middle:]
    return products


def _squared_lengths(
    factors: Float[Tensor, "p b k k"], right: Float[Tensor, "b k n"]
) -> Float[Tensor, "p b n 1"]:
    """Of the columns of L^-1 R; penalty by penalty, to save memory."""
    lengths = chosen(squared_lengths)
    return torch.stack([lengths(each, right) for each in factors]).unsqueeze(-1)


def _chosen(parts: Tensor, penalty: Tensor) -> Tensor:
    """The part of one penalty for each task, with a leading dimension of one."""
    return chosen_penalties(parts[None], penalty[None])


def chosen_penalties(parts: Float[Tensor, "s p b *n y"], penalties: Int[Tensor, "s b"]) -> Tensor:
    """The part of one penalty for each set and task."""
    sets, tasks = (torch.arange(n, device=penalties.device) for n in penalties.shape)
    return parts[sets[:, None], penalties, tasks]
