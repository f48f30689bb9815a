"""Regressions on fixed features alone, solved on all rows of a context of few.

What is solved is `ridge_inputs.leave_one_out`. That chooses penalties for every context, and makes
logits of each row; here several draws of features take the penalties of one, and make shares alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

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
from tabicl_linear.ridge_inputs.solved import assert_solved
from tabicl_linear.types import Float, Int, Tensor

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
    targets: Float[Tensor, "n y"],
    sets: Sequence[FeatureSet],
    penalties: Penalties,
) -> FixedAlone:
    """Solve for each set and penalty; rows left out choose by squared error.

    Args:
        features: All features of the rows.
        targets: Their labels, one-hot.
        sets: What each regression takes of the features.
        penalties: To choose from.

    Raises:
        torch.linalg.LinAlgError: A regression has no solution.
    """
    candidates = _candidates(features[None], targets[None], sets, penalties)
    best = [(each.left_out - targets).square().sum((1, 2, 3)).argmin() for each in candidates]
    pairs = list(zip(candidates, best, strict=True))
    left_out = torch.stack([each.left_out[number, 0] for each, number in pairs])
    residuals = (left_out - targets).flatten(1)
    mixture = best_mixture((residuals @ residuals.T)[None])[0]
    linear = [each.choose(number[None]).linear() for each, number in pairs]
    assert_solved([weights for weights, _ in linear])
    weights = targets.new_zeros(features.shape[1], targets.shape[1])
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


class _Candidates(NamedTuple):
    """A set solved with each of its penalties.

    Attributes:
        choose: The regression with one penalty for each task, given by its index.
        left_out: Predictions of all rows, each from all others.
    """

    choose: Callable[[Int[Tensor, " b"]], Regression]
    left_out: Float[Tensor, "p b n y"]


def _candidates(
    features: Float[Tensor, "b n f"],
    targets: Float[Tensor, "b n y"],
    sets: Sequence[FeatureSet],
    penalties: Penalties,
) -> list[_Candidates]:
    """Every set, from products of rows where they are no more than features, else from sums."""
    pairs = list(zip(sets, penalties, strict=True))
    if features.shape[1] <= features.shape[2]:
        return [_of_rows(features, targets, part, several) for part, several in pairs]
    moments = Moments.of([RidgeSums.of(features, targets)])
    return [_of_moments(moments, features, targets, part, several) for part, several in pairs]


def _of_rows(
    features: Float[Tensor, "b n f"],
    targets: Float[Tensor, "b n y"],
    part: FeatureSet,
    penalties: Sequence[float],
) -> _Candidates:
    rows = solve_rows(features, targets, [part], penalties)
    return _Candidates(lambda penalty: rows.choose(penalty[None])[0], rows.left_out[0])


def _of_moments(
    moments: Moments,
    features: Float[Tensor, "b n f"],
    targets: Float[Tensor, "b n y"],
    part: FeatureSet,
    penalties: Sequence[float],
) -> _Candidates:
    solution = solve_moments(moments, part, penalties)
    return _Candidates(
        solution.regression.choose, solution.left_out(of_set(features, part), targets)
    )
