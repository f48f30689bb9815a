"""Regressions on fixed features alone, solved on all rows of a short context.

`ridge_inputs.leave_one_out` solves the same, but chooses penalties for every context and makes
logits of each row. Here several draws of features share the penalties of one, and predict shares.
"""

from collections.abc import Sequence

import torch

from tabicl_linear.estimator.learners.chosen_trees.solving import Linear
from tabicl_linear.ridge_inputs.feature_sets import FeatureSet, of_set
from tabicl_linear.ridge_inputs.predictions import best_mixture
from tabicl_linear.ridge_inputs.solve import solve_moments
from tabicl_linear.ridge_inputs.solve_rows import solve_rows
from tabicl_linear.ridge_inputs.solved import assert_solved
from tabicl_linear.ridge_inputs.sums import Moments, RidgeSums
from tabicl_linear.types import Float, Int, Tensor

Penalties = Sequence[Sequence[float]]
"""Penalties to choose from, for each set of fixed features."""


def solve_alone(
    features: Float[Tensor, "n f"],
    targets: Float[Tensor, "n y"],
    sets: Sequence[FeatureSet],
    penalties: Penalties,
) -> tuple[Linear, Penalties]:
    """Solve for each set and penalty; the squared error of left-out rows chooses the penalty.

    `targets` are one-hot labels, and `sets` are the features that each regression takes. Returns
    the mixture of the regressions of all sets, without leaves, and the penalty chosen for each.

    Raises:
        torch.linalg.LinAlgError: A regression has no solution.
    """
    x, r = features[None], targets[None]
    # From products of rows if there are no more rows than features, else from sums.
    moments = Moments.of([RidgeSums.of(x, r)]) if x.shape[1] > x.shape[2] else None
    linear, predicted, chosen = [], [], list[list[float]]()
    for part, candidates in zip(sets, penalties, strict=True):
        if moments is None:
            rows = solve_rows(x, r, [part], candidates)
            left_out = rows.left_out[0]
            best = _best(left_out, r)
            regression = rows.choose(best[None, None])[0]
        else:
            sums = solve_moments(moments, part, candidates)
            left_out = sums.left_out(of_set(x, part), r)
            best = _best(left_out, r)
            regression = sums.regression.choose(best[None])
        linear.append(regression.linear())
        predicted.append(left_out[best, 0])
        chosen.append([candidates[int(best)]])
    residuals = (torch.stack(predicted) - targets).flatten(1)
    mixture = best_mixture((residuals @ residuals.T)[None])[0]
    assert_solved([weights for weights, _ in linear])
    weights = targets.new_zeros(features.shape[1], targets.shape[1])
    for share, (of_kinds, _), kinds in zip(mixture, linear, sets, strict=True):
        sizes = [kind.size for kind in kinds]
        for kind, of_kind in zip(kinds, of_kinds[0, 0].split(sizes), strict=True):
            weights[kind.place] += share * of_kind
    offset = mixture @ torch.cat([offset[0] for _, offset in linear])
    left_out = torch.einsum("s,sny->ny", mixture, torch.stack(predicted))
    return Linear(weights[:0], weights, offset, left_out), chosen


def _best(left_out: Float[Tensor, "p 1 n y"], targets: Float[Tensor, "1 n y"]) -> Int[Tensor, ""]:
    """Index of the penalty whose predictions of left-out rows have the least squared error."""
    return (left_out - targets).square().sum((1, 2, 3)).argmin()
