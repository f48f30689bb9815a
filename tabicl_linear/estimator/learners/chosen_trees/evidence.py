"""What rows that were left out say: which penalty, and how much of what."""

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
"""To choose from, in units of the variance of a row's features."""
PENALTIES_OF_COLUMNS = (*PENALTIES, 10.0)
"""For regressions on the columns alone, which are solved in no time."""
PENALTIES_OF_MANY = PENALTIES[::-2]
"""Penalties that contexts of more than `FEW_ROWS` try on their first division, until one is worse.

On the other divisions they try the best of these and a quarter of it: the mean of solutions varies
less than one of them, so that a smaller penalty suits it."""
AFTER_A_ROUND = 3
"""Penalties that are left after the first round: the best so far, and the next smaller ones, as
smaller penalties suit the mean of more solutions."""
PARTS = 8
"""Steps from 0 to 1 in which the part of the fixed features is tried."""
STANDARD_ERRORS = 2.0
"""A smaller part of the fixed features is taken if its loss is above the best by no more."""

STEPS_OF_MANY = 50
"""Most steps of the search of a map of logits for more classes than `MOST_MAPPED`."""
BOOSTING_PENALTY = 30.0
"""Penalty on the squared distance of the factors of logits from 1 and 0, those of solutions alone.

Least squares measure shares and boosting measures logits, and trees that are certain of a rare
class say more by the latter."""
COLUMNS_PENALTY = 5.0
"""The same for logits of the columns beside all others. It is multiplied by the number of classes:
the map of many classes, which has seen the labels, has more numbers."""


class OutOfFold(NamedTuple):
    """Class shares or logits of context rows, by solutions that have not seen them.

    Attributes:
        total: Sums over these solutions.
        squares: Sums of squares.
        solutions: How many of them predicted each row.
    """

    total: Float[Tensor, "n y"]
    squares: Float[Tensor, "n y"]
    solutions: Float[Tensor, " n"]

    @classmethod
    def empty(cls, like: Float[Tensor, "n y"]) -> "OutOfFold":
        """No predictions as yet, of rows with such one-hot labels."""
        nothing = torch.zeros_like(like, dtype=torch.float64)
        return cls(nothing, nothing.clone(), nothing[:, 0].clone())

    def add_(self, rows: Int[Tensor, " s"], shares: Float[Tensor, "s y"]) -> None:
        """Add what another solution predicts of some rows, in place."""
        shares = shares.to(self.total)
        self.total.index_add_(0, rows, shares)
        self.squares.index_add_(0, rows, shares.square())
        self.solutions.index_add_(0, rows, torch.ones_like(shares[:, 0]))

    def mean(self) -> Float[Tensor, "n y"]:
        """The mean prediction of each row."""
        return self.total / self.solutions.clamp(min=1).unsqueeze(1)

    def squared_error(self, targets: Float[Tensor, "n y"], num_solutions: int) -> float:
        """What the mean of all solutions will have on new rows, by the rows predicted so far.

        A row was predicted by some of the solutions alone, whose mean varies more: by the variance
        between solutions over their number.
        """
        mean, are_several = self.mean(), self.solutions > 1
        count = self.solutions.clamp(min=2)
        variance = (self.squares - self.total * mean).sum(1).clamp(min=0) / (count - 1)
        excess = (variance * (1 / count - 1 / num_solutions)).where(are_several, 0.0)
        errors = (mean - targets).square().sum(1) - excess
        return float(errors[self.solutions > 0].mean())


class _Tried(NamedTuple):
    """What is known of one penalty: a trial for each division, and what all say of the sample."""

    trials: list[Trial]
    out_of_fold: OutOfFold


class PenaltySearch:
    """The search of a penalty, which tries fewer of them from division to division.

    Args:
        deviation: That of each kind of fixed features.
        targets: Labels of the sample, one-hot.
        penalties: To choose from, in ascending order.
        num_solutions: How many divisions there will be.
        narrow: Whether to leave two penalties after the first division already.
    """

    def __init__(
        self,
        deviation: float,
        targets: Tensor,
        num_solutions: int,
        *,
        penalties: Sequence[float] = PENALTIES,
        narrow: bool,
    ) -> None:
        self._deviation, self._targets, self._num_solutions = deviation, targets, num_solutions
        self._penalties, self._narrow, self._tried = penalties, narrow, dict[float, _Tried]()

    def add(self, regression: Solvable, places: Tensor) -> None:
        """Solve another division, which leaves out rows of the sample in some places."""
        if self._narrow and not self._tried:
            self._add_first_of_many(regression, places)
            return
        for penalty in list(self._tried or self._penalties):
            self._try(penalty, regression, places)
        best = self._best()
        if len(self._tried[best].trials) == HALVES:
            smaller = sorted(penalty for penalty in self._tried if penalty <= best)
            self._tried = {penalty: self._tried[penalty] for penalty in smaller[-AFTER_A_ROUND:]}

    def _add_first_of_many(self, regression: Solvable, places: Tensor) -> None:
        for penalty in PENALTIES_OF_MANY:
            self._try(penalty, regression, places)
            if self._best() != penalty:
                break
        best = self._best()
        self._tried = {best: self._tried[best]}
        self._try(best / 4, regression, places)

    def best(self) -> tuple[list[Solution], OutOfFold]:
        """The solutions with the best penalty, and what they say of rows left out."""
        best = self._tried[self._best()]
        return [trial.solution() for trial in best.trials], best.out_of_fold

    def _try(self, penalty: float, regression: Solvable, places: Tensor) -> None:
        nothing = _Tried([], OutOfFold.empty(self._targets))
        tried = self._tried.setdefault(penalty, nothing)
        trial = regression.solve(penalty, self._deviation)
        tried.trials.append(trial)
        tried.out_of_fold.add_(places, trial.left_out)

    def _best(self) -> float:
        def error(penalty: float) -> float:
            out_of_fold = self._tried[penalty].out_of_fold
            return out_of_fold.squared_error(self._targets, self._num_solutions)

        return min(self._tried, key=error)


def part_of_fixed(
    chosen: Float[Tensor, "n y"],
    fixed: Float[Tensor, "n y"],
    targets: Float[Tensor, "n y"],
    present: Bool[Tensor, " y"],
) -> float:
    """How much the fixed features count beside the chosen trees, by the log-loss of rows left out.

    As little as is not clearly worse than the best (as trees are pruned in Breiman et al.,
    1984): chosen trees are left out of half as many solutions as predict a new row, so that the
    evidence is against them, and of few rows of a class it is weak.

    `chosen` and `fixed` are shares predicted with trees and with fixed features alone, `present`
    the classes of the context.
    """
    parts = torch.arange(PARTS + 1, dtype=targets.dtype, device=targets.device) / PARTS
    mixed = torch.lerp(chosen, fixed, parts[:, None, None])
    # Of each part and row, [p, n].
    losses = torch.stack([_log_losses(shares, targets, present) for shares in mixed])
    best = int(losses.mean(1).argmin())
    excess = losses[: best + 1] - losses[best]
    is_as_good = excess.mean(1) <= STANDARD_ERRORS * excess.std(1) / len(targets) ** 0.5
    return float(parts[int(is_as_good.int().argmax())])


def _log_losses(
    shares: Float[Tensor, "n y"], targets: Float[Tensor, "n y"], present: Bool[Tensor, " y"]
) -> Float[Tensor, " n"]:
    """Log-loss of each row with the confidence that suits all best."""
    sums = confidence_losses(shares[None], targets[None], present[None, None])
    confidence = CONFIDENCES[int(sums.argmin())]
    logits = (confidence * shares).masked_fill(~present, ABSENT_LOGIT)
    return -(logits.log_softmax(-1) * targets).sum(1)


def class_map(
    shares: Float[Tensor, "n y"], targets: Float[Tensor, "n y"], present: Bool[Tensor, " y"]
) -> Float[Tensor, "y z"]:
    """What makes logits of shares, by a logistic regression on rows left out; see `fit_class_map`.

    `shares` are predicted of these rows, float64, and `present` the classes of the context.
    """
    losses = confidence_losses(shares[None], targets[None], present[None, None])
    start = scaled(best_confidence(losses), targets.shape[1])
    if targets.shape[1] > MOST_MAPPED:
        is_told = bool(tell_apart(targets[None]))
        return _map_of_many(shares, targets, present, start[0]) if is_told else start[0]
    return fit_class_map(shares[None], targets[None], present[None], start)[0]


def _map_of_many(
    shares: Float[Tensor, "n y"],
    targets: Float[Tensor, "n y"],
    present: Bool[Tensor, " y"],
    start: Float[Tensor, "y z"],
) -> Float[Tensor, "y z"]:
    """The map of `fit_class_map`, found without the curvature, which takes classes^4 numbers."""
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
    """How much two kinds of logits count in their sum, by the log-loss of rows left out.

    The factors are pulled to those of the first kind alone, 1 and 0. Logits, float64, are by
    solutions that have not seen the row.
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
