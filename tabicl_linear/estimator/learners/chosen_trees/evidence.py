"""Chooses penalties, and the weights of several predictors, by rows that were left out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from tabicl_linear.estimator.arrays import FloatArray
from tabicl_linear.estimator.learners.chosen_trees.divisions import HALVES
from tabicl_linear.estimator.learners.chosen_trees.solving import Solution, Solvable, Trial
from tabicl_linear.estimator.learners.closed_form import MOST_MAPPED
from tabicl_linear.kernels.logistic import ENOUGH
from tabicl_linear.ridge_inputs.class_map import (
    BIAS_PENALTY,
    SHARE_PENALTY,
    fit_class_map,
    never_reversed,
    scaled,
    tell_apart,
)
from tabicl_linear.ridge_inputs.predictions import (
    ABSENT_LOGIT,
    CONFIDENCES,
    best_confidence,
    confidence_losses,
)
from tabicl_linear.types import Bool, Float, Int, Tensor

PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Penalties to choose from, in units of the variance of a row's features."""
PENALTIES_OF_COLUMNS = (*PENALTIES, 10.0)
"""The same for regressions on the columns alone, which are solved in next to no time."""
PENALTIES_OF_MANY = PENALTIES[::-2]
"""Penalties that contexts of more than `FEW_ROWS` rows try on their first division, largest first,
until one is worse than the one before.

After that they only try the best of these and a quarter of it: the mean of several solutions varies
less than one solution, so a smaller penalty suits it."""
AFTER_A_ROUND = 3
"""Number of penalties left after the first round: the best so far and the next smaller ones, as
smaller penalties suit the mean of more solutions."""
PARTS = 8
"""Number of steps from 0 to 1 in which the part of the fixed features is tried."""
STANDARD_ERRORS = 2.0
"""A smaller part of the fixed features is taken if its loss exceeds the least by no more standard
errors than this."""

STEPS_OF_MANY = 50
"""Maximum number of search steps for the class map of more than `MOST_MAPPED` classes."""
BOOSTING_PENALTY = 30.0
"""Penalty on the squared distance of the two factors, of the logits of solutions and of boosting,
from (1, 0).

Least squares fits shares and boosting fits logits, which predict better where trees are certain of
a rare class."""
COLUMNS_PENALTY = 5.0
"""The same for the logits of columns beside all others. It is multiplied by the number of classes,
since the map of many classes has more numbers, which were fitted to the same labels."""


class OutOfFold(NamedTuple):
    """Class shares or logits of context rows, predicted by solutions that have not seen them.

    Attributes:
        total: Sums of the predictions over these solutions.
        squares: Sums of their squares.
        solutions: Number of solutions that predicted each row.
    """

    total: Float[Tensor, "n y"]
    squares: Float[Tensor, "n y"]
    solutions: Float[Tensor, " n"]

    @classmethod
    def empty(cls, like: Float[Tensor, "n y"]) -> "OutOfFold":
        """No predictions yet, for rows with one-hot labels of this shape."""
        nothing = torch.zeros_like(like, dtype=torch.float64)
        return cls(nothing, nothing.clone(), nothing[:, 0].clone())

    def add_(self, rows: Int[Tensor, " s"], shares: Float[Tensor, "s y"]) -> None:
        """Add another solution's predictions of some rows (their indices), in place."""
        shares = shares.to(self.total)
        self.total.index_add_(0, rows, shares)
        self.squares.index_add_(0, rows, shares.square())
        self.solutions.index_add_(0, rows, torch.ones_like(shares[:, 0]))

    def mean(self) -> Float[Tensor, "n y"]:
        """The mean prediction of each row."""
        return self.total / self.solutions.clamp(min=1).unsqueeze(1)

    def squared_error(self, targets: Float[Tensor, "n y"], num_solutions: int) -> float:
        """Estimate the squared error that the mean of all solutions will have on new rows.

        The rows predicted so far were each predicted by only some of all `num_solutions` solutions.
        The mean of fewer solutions varies more: by the variance between solutions over their
        number. This excess is subtracted.
        """
        mean, are_several = self.mean(), self.solutions > 1
        count = self.solutions.clamp(min=2)
        variance = (self.squares - self.total * mean).sum(1).clamp(min=0) / (count - 1)
        excess = (variance * (1 / count - 1 / num_solutions)).where(are_several, 0.0)
        errors = (mean - targets).square().sum(1) - excess
        return float(errors[self.solutions > 0].mean())


class _PenaltyTrials(NamedTuple):
    """The trials of one penalty, one for each division, and their predictions of the sample."""

    trials: list[Trial]
    out_of_fold: OutOfFold


class PenaltySearch:
    """Searches for the best penalty, and tries fewer penalties from division to division.

    Args:
        deviation: Deviation of each kind of fixed features.
        targets: Labels of the sample, one-hot [s y].
        num_solutions: How many divisions there will be.
        penalties: Penalties to choose from.
        narrow: Whether to try them in this order on the first division until one is worse than the
            one before, and to go on with the best of them and a quarter of it.
    """

    def __init__(
        self,
        deviation: float,
        targets: Tensor,
        num_solutions: int,
        penalties: Sequence[float],
        *,
        narrow: bool,
    ) -> None:
        self._deviation, self._targets, self._num_solutions = deviation, targets, num_solutions
        self._penalties, self._narrow = penalties, narrow
        self._by_penalty = dict[float, _PenaltyTrials]()

    def add(self, regression: Solvable, places: Tensor) -> None:
        """Solve another division, which leaves out the rows at `places` of the sample."""
        if self._narrow and not self._by_penalty:
            self._add_first_of_many(regression, places)
            return
        for penalty in list(self._by_penalty or self._penalties):
            self._try(penalty, regression, places)
        best = self._best()
        if len(self._by_penalty[best].trials) == HALVES:
            smaller = sorted(penalty for penalty in self._by_penalty if penalty <= best)
            self._by_penalty = {
                penalty: self._by_penalty[penalty] for penalty in smaller[-AFTER_A_ROUND:]
            }

    def _add_first_of_many(self, regression: Solvable, places: Tensor) -> None:
        """Solve the first division of a long context, and leave two penalties to try."""
        for penalty in self._penalties:
            self._try(penalty, regression, places)
            if self._best() != penalty:
                break
        best = self._best()
        self._by_penalty = {best: self._by_penalty[best]}
        self._try(best / 4, regression, places)

    def best(self) -> tuple[list[Solution], OutOfFold]:
        """The solutions with the best penalty, and their predictions of the rows left out."""
        best = self._by_penalty[self._best()]
        return [trial.solution() for trial in best.trials], best.out_of_fold

    def _try(self, penalty: float, regression: Solvable, places: Tensor) -> None:
        nothing = _PenaltyTrials([], OutOfFold.empty(self._targets))
        of_penalty = self._by_penalty.setdefault(penalty, nothing)
        trial = regression.solve(penalty, self._deviation)
        of_penalty.trials.append(trial)
        of_penalty.out_of_fold.add_(places, trial.left_out)

    def _best(self) -> float:
        def error(penalty: float) -> float:
            out_of_fold = self._by_penalty[penalty].out_of_fold
            return out_of_fold.squared_error(self._targets, self._num_solutions)

        return min(self._by_penalty, key=error)


def part_of_fixed(
    chosen: Float[Tensor, "n y"],
    fixed: Float[Tensor, "n y"],
    targets: Float[Tensor, "n y"],
    present: Bool[Tensor, " y"],
) -> float:
    """The weight (0 to 1) of fixed features beside chosen trees, by log-loss on left-out rows.

    It is the smallest that is not clearly worse than the best, the rule by which Breiman et al.
    (1984) prune trees. The evidence is biased against chosen trees, since a left-out row is
    predicted by only half as many solutions with trees as a new row; and it is weak where a class
    has few rows.

    `chosen` and `fixed` are shares predicted with trees and with fixed features alone, and
    `present` says which classes the context has.
    """
    parts = torch.arange(PARTS + 1, dtype=targets.dtype, device=targets.device) / PARTS
    mixed = torch.lerp(chosen, fixed, parts[:, None, None])
    # The log-loss with each part, of each row, [p, n].
    losses = torch.stack([_log_losses(shares, targets, present) for shares in mixed])
    best = int(losses.mean(1).argmin())
    excess = losses[: best + 1] - losses[best]
    is_as_good = excess.mean(1) <= STANDARD_ERRORS * excess.std(1) / len(targets) ** 0.5
    return float(parts[int(is_as_good.int().argmax())])


def _log_losses(
    shares: Float[Tensor, "n y"], targets: Float[Tensor, "n y"], present: Bool[Tensor, " y"]
) -> Float[Tensor, " n"]:
    """Log-loss of each row, with the confidence (factor of shares) that suits all rows best."""
    sums = confidence_losses(shares[None], targets[None], present[None, None])
    confidence = CONFIDENCES[int(sums.argmin())]
    logits = (confidence * shares).masked_fill(~present, ABSENT_LOGIT)
    return -(logits.log_softmax(-1) * targets).sum(1)


def class_map(
    shares: Float[Tensor, "n y"], targets: Float[Tensor, "n y"], present: Bool[Tensor, " y"]
) -> Float[Tensor, "y z"]:
    """The linear map from shares to logits, fitted to left-out rows; see `fit_class_map`.

    `shares` are predictions of these rows, float64, and `present` says which classes the context
    has.
    """
    losses = confidence_losses(shares[None], targets[None], present[None, None])
    start = scaled(best_confidence(losses), targets.shape[1])
    if targets.shape[1] > MOST_MAPPED:
        if not tell_apart(targets[None]):
            return start[0]
        fitted = _map_of_many(shares, targets, present, start[0])
        return never_reversed(fitted[None], targets[None], present[None])[0]
    return fit_class_map(shares[None], targets[None], present[None], start)[0]


def _map_of_many(
    shares: Float[Tensor, "n y"],
    targets: Float[Tensor, "n y"],
    present: Bool[Tensor, " y"],
    start: Float[Tensor, "y z"],
) -> Float[Tensor, "y z"]:
    """The map of `fit_class_map`, without second derivatives, which would be classes^4 numbers."""
    x = torch.cat([shares, torch.ones_like(shares[:, :1])], dim=1)
    penalty = torch.full_like(start[0], SHARE_PENALTY)
    penalty[-1] = BIAS_PENALTY

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        away = torch.from_numpy(point).to(start).view_as(start)
        logits = x @ (start + away).T
        log_shares = logits.masked_fill(~present, -torch.inf).log_softmax(1)
        slope = (log_shares.exp() - targets).T @ x + penalty * away
        log_loss = -(log_shares.masked_fill(~present, 0) * targets).sum()
        loss = log_loss + (penalty * away.square()).sum() / 2
        return float(loss), slope.flatten().cpu().numpy()

    options = {"maxiter": STEPS_OF_MANY, "ftol": ENOUGH}
    zero = np.zeros(start.numel())
    minimum = minimize(loss, zero, jac=True, method="L-BFGS-B", options=options)
    return start + torch.from_numpy(minimum.x).to(start).view_as(start)


def factors(
    first: Float[Tensor, "n y"],
    second: Float[Tensor, "n y"],
    targets: Float[Tensor, "n y"],
    penalty: float,
) -> tuple[float, float]:
    """Factors of two kinds of logits in their sum, by the log-loss of left-out rows.

    They are not negative, and `penalty` pulls them towards (1, 0), the first kind alone. The
    logits, float64, are predicted by solutions that have not seen the row.
    """
    both, first_alone = torch.stack([first, second]), np.array([1.0, 0.0])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        logits = torch.einsum("k,kny->ny", torch.from_numpy(weights).to(both), both)
        log_shares = logits.log_softmax(1)
        slope = torch.einsum("kny,ny->k", both, log_shares.exp() - targets).cpu().numpy()
        away = weights - first_alone
        distance = penalty * away @ away / 2
        return float(-(log_shares * targets).sum()) + distance, slope + penalty * away

    minimum = minimize(loss, first_alone, jac=True, method="L-BFGS-B", bounds=[(0, None)] * 2)
    of_first, of_second = minimum.x.tolist()
    return of_first, of_second
