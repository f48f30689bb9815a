"""Logistic regressions with a few classes by Newton's method, in plain PyTorch.

Each is penalised for its distance from the point where its search starts. All are in float64.
"""

from copy import copy
from typing import NamedTuple

import torch

from tabicl_linear.kernels.cholesky import factored_
from tabicl_linear.types import Bool, Float, Int, Tensor

ITERATIONS = 20
ENOUGH = 1e-6
"""The search ends after a step whose possible gain, relative to 1 + loss, is at most this."""


class LogisticProblem(NamedTuple):
    """Rows, and a linear map from their inputs to logits that is to be fitted.

    Attributes:
        x: Inputs of the rows.
        targets: One-hot labels of the rows. Rows to ignore have zeros here and in `x`.
        present: Classes to use; the map's rows of other classes stay as they are.
        map: The start of the search, to which the penalty pulls; or a fitted map.
        penalty: Weight of half the squared distance from the start, for each input.
    """

    x: Float[Tensor, "b n w"]
    targets: Float[Tensor, "b n k"]
    present: Bool[Tensor, "b k"]
    map: Float[Tensor, "b k w"]
    penalty: Float[Tensor, " w"]


def fitted(problem: LogisticProblem) -> Float[Tensor, "b k w"]:
    """The map with the least penalised log-loss for each task; never worse than the start."""
    return _Search(problem).run()


def inverse_curvature(problem: LogisticProblem) -> Float[Tensor, "b i i"]:
    """The inverse of the loss's curvature (Hessian) at the map; i counts inputs class by class."""
    return _Search(problem).inverse_curvature()


def left_out(problem: LogisticProblem, inverse: Float[Tensor, "b i i"]) -> Float[Tensor, "b n k"]:
    """Logits of each row, as if the map had been fitted to all other rows.

    They come from one step of Newton's method. Let p be the probabilities of a row, r its one-hot
    label, x its inputs, A = x' H^-1 x with the inverse curvature H^-1, and W = diag(p) - p p'. Then
    its logits move by A (I - W A)^-1 (p - r).

    Args:
        problem: The problem, with the fitted map.
        inverse: `inverse_curvature` of the problem.
    """
    x, targets, present, fitted_map, _ = problem
    _, k, width = fitted_map.shape
    logits = x @ fitted_map.mT
    p = logits.masked_fill(~present[:, None], -torch.inf).softmax(-1)
    # One matrix product for each task; `einsum` would make one for each row.
    pairs = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(2)
    of_inputs = inverse.unflatten(2, (k, width)).unflatten(1, (k, width))
    own = pairs @ of_inputs.permute(0, 2, 4, 1, 3).flatten(3).flatten(1, 2)
    own = own.unflatten(2, (k, k))
    spread = p.diag_embed() - p.unsqueeze(-1) * p.unsqueeze(-2)
    identity = torch.eye(k, dtype=p.dtype, device=p.device)
    residuals = (p - targets).unsqueeze(-1)
    # Never singular, as the curvature includes that of the row itself.
    change = own @ torch.linalg.solve_ex(identity - spread @ own, residuals).result
    moved: Tensor = logits + change.squeeze(-1)
    return moved


def is_looked_at_freely(device: torch.device) -> bool:
    """Whether the host can read a value without waiting for work that is queued on the device."""
    return device.type == "cpu"


class _Point(NamedTuple):
    """The progress of each task's search.

    Attributes:
        best: The best map so far.
        loss: Penalised log-loss of the best map.
        probabilities: Probabilities of the rows under the best map.
        size: Fraction of Newton's step to try next.
        searching: Whether another step may still lower the loss.
    """

    best: Float[Tensor, "b k w"]
    loss: Float[Tensor, " b"]
    probabilities: Float[Tensor, "b n k"]
    size: Float[Tensor, " b"]
    searching: Bool[Tensor, " b"]

    def only(self, tasks: Tensor) -> "_Point":
        """The same for some of the tasks, by their indices."""
        return _Point(*(part[tasks] for part in self))


class _Search:
    """Newton's method on all tasks, each with a step of its own."""

    def __init__(self, problem: LogisticProblem) -> None:
        self.x, self.targets, present, self.start, self.penalty = problem
        self.absent = ~present[:, None]
        # The curvature is symmetric in classes and in inputs, so each pair is summed only once.
        (self.classes, of_classes), (inputs, of_inputs) = (
            _pairs(count, self.x.device) for count in self.start.shape[1:]
        )
        self.pairs = _of_pairs(self.x, inputs)
        self.same = of_classes.diagonal()
        places = of_classes[:, None, :, None] * inputs.shape[1] + of_inputs[None, :, None]
        self.places = places.flatten()

    def run(self) -> Tensor:
        """The best map of each task."""
        search, point, best = self, self.begin(), self.start.clone()
        tasks = torch.arange(len(best), device=best.device)
        for _ in range(ITERATIONS):
            point = search.improve(point)
            # On a GPU, waiting for this check takes longer than searching on.
            if is_looked_at_freely(best.device):
                best[tasks] = point.best
                left = point.searching.nonzero().squeeze(1)
                if not len(left):
                    return best
                if len(left) < len(tasks):
                    search, point, tasks = search.only(left), point.only(left), tasks[left]
        return best.index_copy(0, tasks, point.best)

    def only(self, tasks: Tensor) -> "_Search":
        """The search for some of the tasks, by their indices."""
        some = copy(self)
        some.x, some.pairs, some.targets = self.x[tasks], self.pairs[tasks], self.targets[tasks]
        some.start, some.absent = self.start[tasks], self.absent[tasks]
        return some

    def begin(self) -> "_Point":
        """The point at which the search starts."""
        loss, probabilities = self.loss(self.start)
        ones = torch.ones_like(loss)
        return _Point(
            self.start, loss, probabilities, ones, torch.ones_like(ones, dtype=torch.bool)
        )

    def improve(self, point: "_Point") -> "_Point":
        """Try a step for each task; if it does not lower the loss, the next one is smaller.

        If the curvature has no Cholesky factor, the step is NaN and does not lower the loss.
        """
        best, loss, probabilities, size, searching = point
        step, gain = self.step(best, probabilities)
        candidate = best - size[:, None, None] * step
        new_loss, new_probabilities = self.loss(candidate)
        better = searching & (new_loss < loss)
        loss = torch.where(better, new_loss, loss)
        return _Point(
            torch.where(better[:, None, None], candidate, best),
            loss,
            torch.where(better[:, None, None], new_probabilities, probabilities),
            torch.where(better, torch.ones_like(size), size / 4),
            searching & (gain > ENOUGH * (1 + loss)),
        )

    def loss(self, class_map: Tensor) -> tuple[Tensor, Tensor]:
        """The penalised log-loss of each task, and the probabilities of its rows."""
        logits = (self.x @ class_map.mT).masked_fill(self.absent, -torch.inf)
        log_probabilities = logits.log_softmax(-1)
        log_loss = -(log_probabilities.masked_fill(self.absent, 0) * self.targets).sum((1, 2))
        penalty = (self.penalty * (class_map - self.start).square()).sum((1, 2)) / 2
        return log_loss + penalty, log_probabilities.exp()

    def step(self, class_map: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Newton's step, and how much it would lower the loss if that were quadratic."""
        slope = (probabilities - self.targets).mT @ self.x + self.penalty * (class_map - self.start)
        factor = self._factor(probabilities)
        step = torch.cholesky_solve(slope.flatten(1).unsqueeze(-1), factor).view_as(slope)
        return step, (slope * step).sum((1, 2)) / 2

    def inverse_curvature(self) -> Tensor:
        """The inverse of the curvature of the loss at the start."""
        return torch.cholesky_inverse(self._factor(self.loss(self.start)[1]))

    def _factor(self, probabilities: Tensor) -> Tensor:
        """The lower Cholesky factor of the curvature at a map with these probabilities."""
        classes, width = self.start.shape[1:]
        sums = -(_of_pairs(probabilities, self.classes).mT @ self.pairs)
        sums.index_add_(1, self.same, probabilities.mT @ self.pairs)
        size = classes * width
        curvature = sums.flatten(1).index_select(1, self.places).view(-1, size, size)
        curvature.diagonal(dim1=1, dim2=2).add_(self.penalty.repeat(classes))
        return factored_(curvature)


def _pairs(count: int, device: torch.device) -> tuple[Int[Tensor, "2 i"], Int[Tensor, "k k"]]:
    """All unordered pairs of numbers below `count`, and the index of the pair of any two."""
    pairs = torch.triu_indices(count, count, device=device)
    numbers = torch.arange(count, device=device)
    lower, upper = (
        torch.minimum(numbers[:, None], numbers),
        torch.maximum(numbers[:, None], numbers),
    )
    return pairs, lower * (2 * count - 1 - lower) // 2 + upper


def _of_pairs(z: Float[Tensor, "b n k"], pairs: Int[Tensor, "2 i"]) -> Float[Tensor, "b n i"]:
    """Products of pairs of entries along the last dimension."""
    return z.index_select(2, pairs[0]) * z.index_select(2, pairs[1])
