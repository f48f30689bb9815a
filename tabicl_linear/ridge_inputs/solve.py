"""Ridge regression of one-hot labels on features of rows.

Features f are centred by their mean, and scaled so that those of each kind together have the
standard deviation that the set gives them. One-hot labels r are centred by the class shares. Then,
for n rows with features F and labels R:

    W = (F'F + c I)^-1 F'R = F'(FF' + c I)^-1 R,    c = penalty * variance of a row's features
    h_i = f_i'(F'F + c I)^-1 f_i + 1 / n
    row i predicted from the others: share + (f_i'W - h_i r_i) / (1 - h_i)

The last line is exact: it is what a solution on all rows but i, with the same centring and scaling
of features, predicts. Contexts with more rows than features are solved from sums over their rows,
shorter ones from products of their rows. Factors are float64, which Cholesky needs for sums over
long contexts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.triangular import squared_lengths
from tabicl_linear.ridge_inputs.devices import has_slow_float64
from tabicl_linear.ridge_inputs.feature_sets import FeatureSet, of_set, ridge_terms, scales
from tabicl_linear.ridge_inputs.mixed_precision import exact, refined
from tabicl_linear.ridge_inputs.sums import Moments
from tabicl_linear.types import Float, Int, Tensor

LARGEST_LEVERAGE = 1 - 1e-6
"""Above this leverage 1 - h is rounding, and the class shares predict the row.

To clamp 1 - h instead would let rows see their own labels: short contexts have h of 0.99 and more.
"""
SURE_LEVERAGE = 0.5
"""Up to this leverage float32 is enough: with a million rows, 1 - h is off by 2e-4 of itself."""
STEPS_OF_GOOD_FACTORS = 2
"""If this many corrections make solutions exact to 1e-8, each leaves at most 1e-4 of an error."""


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
        """The regression with one penalty (its index) for each task."""
        return self._replace(weights=_chosen(self.weights, penalty))

    def linear(self) -> tuple[Float[Tensor, "p b f y"], Float[Tensor, "p b y"]]:
        """Weights of the features as they are, neither centred nor scaled, and offsets."""
        weights = self.weights * self.scale.unsqueeze(-1)
        return weights, self.shares - (self.mean[:, None] @ weights).squeeze(-2)


class OfSums(NamedTuple):
    """A regression that was solved from sums, and from which any row can be left out.

    Attributes:
        regression: The regression on all rows.
        rows: Number of rows.
        factors: Lower Cholesky factors of F'F + c I, one for each penalty; float32 if solutions
            were refined from them (`refined`).
    """

    regression: Regression
    rows: Float[Tensor, "b 1"]
    factors: Float[Tensor, "p b f f"]

    def left_out(
        self, features: Float[Tensor, "b n f"], targets: Float[Tensor, "b n y"]
    ) -> Float[Tensor, "p b n y"]:
        """Predictions of context rows, each from all others, from their features and labels."""
        features = self._scaled(features, self.rows.dtype)
        leverage = self._leverage(features)
        # By einsum, which puts weights side by side: else features are copied for each penalty.
        predicted = torch.einsum("bnf,pbfy->pbny", features, self.regression.weights)
        return without_own(predicted, leverage, targets, self.regression.shares[:, None])

    def leverages(self, features: Float[Tensor, "b n f"]) -> Float[Tensor, "p b n 1"]:
        """How much context rows weigh in their own predictions, h_i.

        They are computed in the dtype of the features, and again in float64 if above
        `SURE_LEVERAGE`: an error of float32 would let such rows see their own labels. They are few,
        since the leverages of all rows sum to less than the number of features.
        """
        leverage = self._leverage(self._scaled(features, features.dtype)).to(self.rows.dtype)
        high = (leverage > SURE_LEVERAGE).squeeze(-1).flatten(0, 1).any(0).nonzero().squeeze(-1)
        if not len(high):  # or factors would be converted for nothing
            return leverage
        again = self._scaled(features[:, high], self.rows.dtype)
        return leverage.index_copy(2, high, self._leverage(again))

    def _scaled(self, features: Float[Tensor, "b n f"], dtype: torch.dtype) -> Tensor:
        mean, scale, *_ = self.regression
        # Converted first, since operations on two dtypes take twice as long.
        features = features.to(dtype, copy=True)
        return features.sub_(mean[:, None].to(dtype)).mul_(scale[:, None].to(dtype))

    def _leverage(self, features: Float[Tensor, "b n f"]) -> Float[Tensor, "p b n 1"]:
        factors, own = self.factors.to(features.dtype), 1 / self.rows.unsqueeze(-1)
        return _squared_lengths(factors, features.transpose(1, 2)) + own.to(features.dtype)

    def choose(self, penalty: Int[Tensor, " b"]) -> "OfSums":
        """The regression with one penalty (its index) for each task."""
        regression, factors = self.regression.choose(penalty), _chosen(self.factors, penalty)
        return OfSums(regression, self.rows, factors)


def without_own(
    predicted: Float[Tensor, "*p y"],
    leverage: Float[Tensor, "*p 1"],
    targets: Float[Tensor, "... y"],
    shares: Float[Tensor, "... y"],
) -> Float[Tensor, "*p y"]:
    """Shares predicted for rows from all others (see the head of this file).

    `predicted` are the predictions with the row itself, less `shares`.
    """
    change = (predicted - leverage * (targets - shares)) / (1 - leverage)
    return shares + change.masked_fill(leverage > LARGEST_LEVERAGE, 0.0)


def solve_moments(moments: Moments, feature_set: FeatureSet, penalties: Sequence[float]) -> OfSums:
    """Solve for one set, such that rows can be left out; NaN where there is no solution."""
    return System.of(moments, feature_set).leaving_out(penalties)


def solve_weights(
    moments: Moments, feature_set: FeatureSet, penalties: Sequence[float]
) -> Regression:
    """Solve for one set, if no row will be left out; NaN where there is no solution.

    On devices with slow float64, solutions in float32 are refined (`refined`).
    """
    system = System.of(moments, feature_set)
    solver = refined if has_slow_float64(system.gram.device) else exact
    solutions = solver(system.gram, system.added(penalties), system.cross).solutions
    return system.regression(solutions)


class System(NamedTuple):
    """The equations of one set, (gram + c I) W = cross, for all penalties.

    Attributes:
        feature_set: The set.
        rows: Number of rows.
        shares: Class shares.
        mean: Mean of each feature of the set.
        scale: What centred features are multiplied by.
        gram: Sum of products of the scaled features.
        cross: Sum of their products with labels.
    """

    feature_set: FeatureSet
    rows: Float[Tensor, "b 1"]
    shares: Float[Tensor, "b y"]
    mean: Float[Tensor, "b k"]
    scale: Float[Tensor, "b k"]
    gram: Float[Tensor, "b k k"]
    cross: Float[Tensor, "b k y"]

    @classmethod
    def of(cls, moments: Moments, feature_set: FeatureSet) -> "System":
        """The equations of one set, from sums over all features."""
        mean = of_set(moments.mean, feature_set)
        gram = of_set(of_set(moments.gram.mT, feature_set).mT, feature_set)
        scale = scales(gram.diagonal(dim1=-2, dim2=-1) / moments.rows, feature_set)
        cross = of_set(moments.cross.mT, feature_set).mT * scale.unsqueeze(-1)
        gram = (gram * scale.unsqueeze(-1)).mul_(scale[:, None])
        return cls(feature_set, moments.rows, moments.shares, mean, scale, gram, cross)

    def added(self, penalties: Sequence[float]) -> Float[Tensor, "p 1"]:
        """The term c of every penalty."""
        return ridge_terms(penalties, self.feature_set, self.gram)

    def regression(self, weights: Float[Tensor, "p b k y"]) -> Regression:
        """The regression with these solutions W."""
        return Regression(self.mean, self.scale, self.shares, weights)

    def leaving_out(self, penalties: Sequence[float]) -> OfSums:
        """Solve such that rows can be left out; NaN where there is no solution.

        This is in float64 on every device: to leave out a row takes as many operations as to refine
        its leverage from float32 would.
        """
        solutions, factors = exact(self.gram, self.added(penalties), self.cross)
        return OfSums(self.regression(solutions), self.rows, factors)

    def leaving_out_refined(self, penalties: Sequence[float]) -> OfSums:
        """The same from float32 factors if these are good enough, for thousands of features.

        Weights are as exact as in float64. Leverages have a relative error of up to 1e-4.
        """
        steps = STEPS_OF_GOOD_FACTORS
        solutions, factors = refined(self.gram, self.added(penalties), self.cross, steps=steps)
        return OfSums(self.regression(solutions), self.rows, factors)


def _squared_lengths(
    factors: Float[Tensor, "p b k k"], right: Float[Tensor, "b k n"]
) -> Float[Tensor, "p b n 1"]:
    """Squared lengths of the columns of L^-1 R, computed penalty by penalty to save memory."""
    lengths = chosen(squared_lengths)
    return torch.stack([lengths(each, right) for each in factors]).unsqueeze(-1)


def _chosen(parts: Tensor, penalty: Tensor) -> Tensor:
    """The part of one penalty for each task, with a leading dimension of one."""
    return chosen_penalties(parts[None], penalty[None])


def chosen_penalties(parts: Float[Tensor, "s p b *n y"], penalties: Int[Tensor, "s b"]) -> Tensor:
    """The part of one penalty for each set and task."""
    sets, tasks = (torch.arange(n, device=penalties.device) for n in penalties.shape)
    return parts[sets[:, None], penalties, tasks]
