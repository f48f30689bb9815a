"""Regressions on fixed features alone, solved on all rows of a context of few.

What is solved is `ridge_inputs.leave_one_out`. That chooses penalties for every context, and makes
logits of each row; here several draws of features take the penalties of one, and make shares alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.cholesky import assert_solved
from tabicl_linear.ridge_inputs.predictions import best_mixture
from tabicl_linear.ridge_inputs.solve import (
    FeatureSet,
    Moments,
    Regression,
    RidgeSums,
    of_set,
    solve_moments,
    solve_rows,
)
from tabicl_linear.types import Float, Tensor

Penalties = Sequence[Sequence[float]]
"""To choose from, for each set."""


class FixedAlone(NamedTuple):
    """The mixture of the regressions of all sets, as one linear function.

    Attributes:
        weights: Of all features.
        offset: What is added.
        left_out: Predictions of the rows, each from all others.
        penalties: The one chosen for each set.
    """

    weights: Float[Tensor, "f y"]
    offset: Float[Tensor, " y"]
    left_out: Float[Tensor, "n y"]
    penalties: Penalties


def solve_alone(
    features: Float[Tensor, "n f"],
    r: Float[Tensor, "n y"],
    sets: Sequence[FeatureSet],
    penalties: Penalties,
) -> FixedAlone:
    """Solve for each set and penalty; rows left out choose by squared error.

    Args:
        features: All features of the rows.
        r: Their labels, one-hot.
        sets: What each regression takes of the features.
        penalties: To choose from.

    Raises:
        torch.linalg.LinAlgError: A regression has no solution.
    """
    solved = _solved(features[None], r[None], sets, penalties)
    best = [(left_out - r).square().sum((1, 2, 3)).argmin() for _, left_out in solved]
    pairs = list(zip(solved, best, strict=True))
    left_out = torch.stack([each[number, 0] for (_, each), number in pairs])
    residuals = (left_out - r).flatten(1)
    mixture = best_mixture((residuals @ residuals.T)[None])[0]
    linear = [regression.choose(number[None]).linear() for (regression, _), number in pairs]
    assert_solved([weights for weights, _ in linear])
    weights = r.new_zeros(features.shape[1], r.shape[1])
    for part, (of_kinds, _), kinds in zip(mixture, linear, sets, strict=True):
        sizes = [kind.size for kind in kinds]
        for kind, of_kind in zip(kinds, of_kinds[0, 0].split(sizes), strict=True):
            weights[kind.place] += part * of_kind
    return FixedAlone(
        weights,
        mixture @ torch.cat([offset[0] for _, offset in linear]),
        torch.einsum("s,sny->ny", mixture, left_out),
        [[several[int(number)]] for several, number in zip(penalties, best, strict=True)],
    )


def _solved(
    features: Float[Tensor, "b n f"],
    r: Float[Tensor, "b n y"],
    sets: Sequence[FeatureSet],
    penalties: Penalties,
) -> list[tuple[Regression, Float[Tensor, "_p b n y"]]]:
    """For each set the regression, and predictions of all rows with each penalty."""
    pairs = list(zip(sets, penalties, strict=True))
    if features.shape[1] <= features.shape[2]:
        return [solve_rows(features, r, [part], several)[0] for part, several in pairs]
    moments, found = Moments.of([RidgeSums.of(features, r)]), []
    for part, several in pairs:
        solution = solve_moments(moments, part, several)
        found.append((solution.regression, solution.left_out(of_set(features, part), r)))
    return found
