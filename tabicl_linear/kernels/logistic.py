"""Logistic regressions of a few classes by Newton's method, in plain PyTorch.

Each is pulled to where its search starts. All are float64.
"""

from copy import copy
from typing import NamedTuple

import torch

from tabicl_linear.kernels.cholesky import factored_
from tabicl_linear.types import Bool, Float, Int, Tensor

ITERATIONS = 20
ENOUGH = 1e-6
"""A step that can gain no more than this, relatively, is the last."""


class LogisticProblem(NamedTuple):
    """Rows that a map of their inputs to logits is fitted to.

    Attributes:
        x: Inputs of the rows.
        targets: Their one-hot labels; zero for rows that do not count, whose inputs are zero too.
        present: Classes that count; the rows of others in the map keep their start.
        map: Where a search starts, and what the penalty pulls to; or a map that has been found.
        penalty: Of half the squared distance from there, for each input.
    """

    x: Float[Tensor, "b n w"]
    targets: Float[Tensor, "b n k"]
    present: Bool[Tensor, "b k"]
    map: Float[Tensor, "b k w"]
    penalty: Float[Tensor, " w"]


def fitted(problem: LogisticProblem) -> Float[Tensor, "b k w"]:
    """The map of least penalised log-loss of each task, never worse than its start."""
    return _Search(problem).run()


def inverse_curvature(problem: LogisticProblem) -> Float[Tensor, "b i i"]:
    """The inverse of the curvature of the loss at the map; an input of a class after the other."""
    return _Search(problem).inverse_curvature()


def left_out(problem: LogisticProblem, inverse: Float[Tensor, "b i i"]) -> Float[Tensor, "b n k"]:
    """Logits of the rows, each as if the map had been fitted to all others.

    By one step of Newton's method. With p the probabilities of a row, x its inputs, A = x' H^-1 x
    over the inverse curvature and W = diag(p) - p p': its logits move by A (I - W A)^-1 (p - r).
    """
    x, targets, present, fitted_map, _ = problem
    _, k, width = fitted_map.shape
    logits = x @ fitted_map.mT
    p = logits.masked_fill(~present[:, None], -torch.inf).softmax(-1)
    # One product for each task, where `einsum` would make one for each row as well.
    pairs = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(2)
    of_inputs = inverse.unflatten(2, (k, width)).unflatten(1, (k, width))
    own = pairs @ of_inputs.permute(0, 2, 4, 1, 3).flatten(3).flatten(1, 2)
    own = own.unflatten(2, (k, k))
    spread = p.diag_embed() - p.unsqueeze(-1) * p.unsqueeze(-2)
    identity = torch.eye(k, dtype=p.dtype, device=p.device)
    residuals = (p - targets).unsqueeze(-1)
    # Never singular: the curvature holds that of the row itself.
    change = own @ torch.linalg.solve_ex(identity - spread @ own, residuals).result
    moved: Tensor = logits + change.squeeze(-1)
    return moved


def is_looked_at_freely(device: torch.device) -> bool:
    """Whether the host can look at a value without waiting for a queue of work on a device."""
    return device.type == "cpu"


class _Point(NamedTuple):
    """How far the search of each task has come.

    Attributes:
        best: The best map so far.
        loss: Its loss.
        probabilities: Those of the rows under it.
        size: Part of the next step that is tried.
        searching: Whether a step may still gain something.
    """

    best: Float[Tensor, "b k w"]
    loss: Float[Tensor, " b"]
    probabilities: Float[Tensor, "b n k"]
    size: Float[Tensor, " b"]
    searching: Bool[Tensor, " b"]

    def only(self, tasks: Tensor) -> "_Point":
        """Of some of the tasks, given by their indices."""
        return _Point(*(part[tasks] for part in self))


class _Search:
    """Newton's method on all tasks, each with a step of its own."""

    def __init__(self, problem: LogisticProblem) -> None:
        self.x, self.targets, present, self.start, self.penalty = problem
        self.absent = ~present[:, None]
        # The curvature is symmetric in two classes and in two inputs: each pair is summed once.
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
            if is_looked_at_freely(best.device):  # else searching on takes less time than to look
                best[tasks] = point.best
                left = point.searching.nonzero().squeeze(1)
                if not len(left):
                    return best
                if len(left) < len(tasks):
                    search, point, tasks = search.only(left), point.only(left), tasks[left]
        return best.index_copy(0, tasks, point.best)

    def only(self, tasks: Tensor) -> "_Search":
        """The search of some of the tasks, given by their indices."""
        some = copy(self)
        some.x, some.pairs, some.targets = self.x[tasks], self.pairs[tasks], self.targets[tasks]
        some.start, some.absent = self.start[tasks], self.absent[tasks]
        return some

    def begin(self) -> "_Point":
        """Where the search starts."""
        loss, probabilities = self.loss(self.start)
        ones = torch.ones_like(loss)
        return _Point(
            self.start, loss, probabilities, ones, torch.ones_like(ones, dtype=torch.bool)
        )

    def improve(self, point: "_Point") -> "_Point":
        """Try a step; a smaller one after a failure. A curvature without a factor is a failure."""
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
        """Penalised log-loss of each task, and the probabilities."""
        logits = (self.x @ class_map.mT).masked_fill(self.absent, -torch.inf)
        log_probabilities = logits.log_softmax(-1)
        log_loss = -(log_probabilities.masked_fill(self.absent, 0) * self.targets).sum((1, 2))
        penalty = (self.penalty * (class_map - self.start).square()).sum((1, 2)) / 2
        return log_loss + penalty, log_probabilities.exp()

    def step(self, class_map: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Newton's step, and what it would gain if the loss were quadratic."""
        slope = (probabilities - self.targets).mT @ self.x + self.penalty * (class_map - self.start)
        factor = self._factor(probabilities)
        step = torch.cholesky_solve(slope.flatten(1).unsqueeze(-1), factor).view_as(slope)
        return step, (slope * step).sum((1, 2)) / 2

    def inverse_curvature(self) -> Tensor:
        """The inverse of the curvature of the loss at the start."""
        return torch.cholesky_inverse(self._factor(self.loss(self.start)[1]))

    def _factor(self, probabilities: Tensor) -> Tensor:
        """The lower Cholesky factor of the curvature, where the map gives such probabilities."""
        classes, width = self.start.shape[1:]
        sums = -(_of_pairs(probabilities, self.classes).mT @ self.pairs)
        sums.index_add_(1, self.same, probabilities.mT @ self.pairs)
        size = classes * width
        curvature = sums.flatten(1).index_select(1, self.places).view(-1, size, size)
        curvature.diagonal(dim1=1, dim2=2).add_(self.penalty.repeat(classes))
        return factored_(curvature)


def _pairs(count: int, device: torch.device) -> tuple[Int[Tensor, "2 i"], Int[Tensor, "k k"]]:
    """Each pair of numbers below a count once, and which of them is that of any two numbers."""
    pairs = torch.triu_indices(count, count, device=device)
    numbers = torch.arange(count, device=device)
    lower, upper = (
        torch.minimum(numbers[:, None], numbers),
        torch.maximum(numbers[:, None], numbers),
    )
    return pairs, lower * (2 * count - 1 - lower) // 2 + upper


def _of_pairs(z: Float[Tensor, "b n k"], pairs: Int[Tensor, "2 i"]) -> Float[Tensor, "b n i"]:
    """Products of two numbers of the last dimension."""
    return z.index_select(2, pairs[0]) * z.index_select(2, pairs[1])
