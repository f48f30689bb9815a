"""Ridge regressions solved from products of the rows of a context, which are fewer than features.

The equations are those of `solve`, in their dual form.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from tabicl_linear.kernels.cholesky import shifted_solutions
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.ridge_inputs.feature_sets import FeatureSet, of_set, ridge_terms, scale_of_kind
from tabicl_linear.ridge_inputs.solve import LARGEST_LEVERAGE, Regression, chosen_penalties
from tabicl_linear.types import Float, Int, Tensor


class OfRows(NamedTuple):
    """Regressions that were solved from the rows themselves; their weights are sums over the rows.

    Attributes:
        features: All features of the rows, centred.
        mean: Mean of each feature.
        shares: Class shares.
        sets: The features that each regression takes.
        scales: What each regression multiplies its features by.
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
        """The regression on each set, with one penalty (its index) for each task."""
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
    """Solve for each set from the rows themselves: their features and one-hot labels.

    With A = (FF' + c I)^-1, the residuals of all rows are c A R, and 1 - h_i = c A_ii - 1 / n; see
    `solve` for the symbols.
    """
    rows = _Rows.of(features, sets)
    shares = targets.mean(1)
    each = [rows.solve(targets, shares, feature_set, penalties) for feature_set in sets]
    scales, *parts = zip(*each, strict=True)
    return OfRows(rows.features, rows.mean, shares, sets, scales, *map(torch.stack, parts))


class _Rows(NamedTuple):
    """What regressions on the same rows share, since sets only scale whole kinds of features.

    Attributes:
        features: Features of the rows, centred.
        mean: Mean of each feature.
        products: Products of any two rows for every kind, by the start and stop of its features.
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
        """The scale, the dual solutions, and predictions of the rows, each from all others."""
        scale, gram = self._scaled(feature_set)
        added = ridge_terms(penalties, feature_set, gram)
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
        """The factors of features, the same for all of a kind, and products of the scaled rows."""
        tasks, rows, _ = self.features.shape
        gram, scales = self.features.new_zeros(tasks, rows, rows), []
        for part in feature_set:
            product = self.products[part.place.start, part.place.stop]
            # The diagonal sums the squares of a row, so its mean is the variance of the kind.
            variance = product.diagonal(dim1=1, dim2=2).sum(-1, keepdim=True) / rows
            factor = scale_of_kind(variance, part)
            gram.addcmul_(product, factor.square().unsqueeze(-1))
            scales.append(factor.expand(-1, part.size))
        return torch.cat(scales, dim=-1), gram
