"""Logits from predicted class shares: a linear function of all shares, fitted to each context.

Least squares on class indicators masks classes that lie between others, and the share of a rare
class seldom reaches that of a common one. Rows that are left out of a context show both, and a
logistic regression of their labels on their predicted shares mends them (stacked generalisation,
Wolpert 1992). The rows themselves get logits from a regression on the others, by a single step of
Newton's method from that on all (approximate leave-one-out, Rad and Maleki 2020).
"""

from copy import copy
from typing import NamedTuple

import torch

from tabicl_linear.kernels.cholesky import factored_
from tabicl_linear.ridge_inputs.devices import is_looked_at_freely, most_at_once
from tabicl_linear.types import Bool, Float, Int, Tensor

SHARE_PENALTY = 0.2
"""Of the squared distance of a factor from where it starts, which is of the order of ten."""
BIAS_PENALTY = 2.0
"""Of a squared constant, in units of logits."""
ITERATIONS = 20
ENOUGH = 1e-6
"""A step that can gain no more than this, relatively, is the last."""


def scaled(confidence: Float[Tensor, "b 1"], num_classes: int) -> Float[Tensor, "b y z"]:
    """The map that multiplies every share by the same factor. z: classes, and one for constants."""
    return confidence.unsqueeze(-1) * torch.eye(
        num_classes, num_classes + 1, dtype=confidence.dtype, device=confidence.device
    )


def mapped(
    shares: Float[Tensor, "b n y"], class_map: Float[Tensor, "b y z"]
) -> Float[Tensor, "b n y"]:
    """Logits of rows with such shares."""
    logits: Tensor = shares @ class_map[..., :-1].mT + class_map[:, None, :, -1]
    return logits


class FittedMap(NamedTuple):
    """A map and what is needed to leave out rows that it was fitted to.

    Attributes:
        class_map: The map.
        present: Classes that count.
        covariance: Inverse of the curvature of the loss, for the classes up to the last one that
            any task has and, last, constants.
    """

    class_map: Float[Tensor, "b y z"]
    present: Bool[Tensor, "b y"]
    covariance: Float[Tensor, "b k w k w"]

    @classmethod
    def of(
        cls,
        class_map: Float[Tensor, "b y z"],
        shares: Float[Tensor, "b n y"],
        targets: Float[Tensor, "b n y"],
        present: Bool[Tensor, "b y"],
    ) -> "FittedMap":
        """What `fit_class_map` has found for such shares, labels and classes."""
        return cls(class_map, present, _Search.of(shares, targets, present, class_map).covariance())

    def left_out(
        self, shares: Float[Tensor, "b n y"], targets: Float[Tensor, "b n y"]
    ) -> Float[Tensor, "b n y"]:
        """Logits of rows that the map was fitted to, each as if it had not been among them.

        With p the probabilities of a row, x its shares and a one, A = x' H^-1 x over the inverse
        curvature and W = diag(p) - p p': its logits move by A (I - W A)^-1 (p - r).

        Args:
            shares: Their shares.
            targets: Their one-hot labels.
        """
        logits, k = mapped(shares, self.class_map), self.covariance.shape[1]
        absent = ~self.present[:, None, :k]
        p = logits[..., :k].masked_fill(absent, -torch.inf).softmax(-1)
        x = torch.cat([shares[..., :k], torch.ones_like(shares[..., :1])], dim=-1)
        # One product for each task, where `einsum` would make one for each row as well.
        pairs = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(2)
        own = pairs @ self.covariance.permute(0, 2, 4, 1, 3).flatten(3).flatten(1, 2)
        own = own.unflatten(2, (k, k))
        spread = p.diag_embed() - p.unsqueeze(-1) * p.unsqueeze(-2)
        identity = torch.eye(k, dtype=p.dtype, device=p.device)
        residuals = (p - targets[..., :k]).unsqueeze(-1)
        # Never singular: the curvature holds that of the row itself.
        change = own @ torch.linalg.solve_ex(identity - spread @ own, residuals).result
        return torch.cat([logits[..., :k] + change.squeeze(-1), logits[..., k:]], dim=-1)


def fit_class_map(
    shares: Float[Tensor, "b n y"],
    targets: Float[Tensor, "b n y"],
    present: Bool[Tensor, "b y"],
    start: Float[Tensor, "b y z"],
) -> Float[Tensor, "b y z"]:
    """The map of least penalised log-loss, by Newton's method; never worse than its start.

    Args:
        shares: Predictions of rows that were left out, float64.
        targets: Their one-hot labels; zero for rows that do not count, whose shares are zero too.
        present: Classes that the context has; others keep their start.
        start: Where the search begins, and what the penalty pulls to.
    """
    rows, classes, width = *shares.shape[1:], start.shape[2]
    some = most_at_once(start.device, rows * classes * width)
    maps = start.clone()
    problems = zip(*(part.split(some) for part in (shares, targets, present, start)), strict=True)
    for problem, of_tasks in zip(problems, maps.split(some), strict=True):
        search = _Search.of(*problem)
        best, count = search.run(), search.targets.shape[-1]
        of_tasks[:, :count, :count] = best[..., :-1]
        of_tasks[:, :count, -1] = best[..., -1]
    return maps


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


def _num_classes(present: Bool[Tensor, "b y"]) -> int:
    """Classes up to the last one that any task has, or all where it takes a wait to find out."""
    if not is_looked_at_freely(present.device):
        return present.shape[1]
    return int(present.any(0).nonzero().max()) + 1


class _Search:
    """Newton's method on all tasks, each with a step of its own."""

    @classmethod
    def of(cls, shares: Tensor, targets: Tensor, present: Tensor, start: Tensor) -> "_Search":
        """That of the classes up to the last one that any task has."""
        columns = slice(_num_classes(present))
        start = torch.cat([start[:, columns, columns], start[:, columns, -1:]], dim=-1)
        return cls(shares[..., columns], targets[..., columns], present[:, columns], start)

    def __init__(self, shares: Tensor, targets: Tensor, present: Tensor, start: Tensor) -> None:
        # One, but for rows that do not count.
        self.x = torch.cat([shares, targets.sum(-1, keepdim=True)], dim=-1)
        self.targets, self.start = targets, start
        self.absent = ~present[:, None]
        self.penalty = torch.full_like(start[0, 0], SHARE_PENALTY)
        self.penalty[-1] = BIAS_PENALTY
        # The curvature is symmetric in two classes and in two inputs: each pair is summed once.
        (self.classes, of_classes), (inputs, of_inputs) = (
            _pairs(count, start.device) for count in start.shape[1:]
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
        tried = best - size[:, None, None] * step
        new_loss, new_probabilities = self.loss(tried)
        better = searching & (new_loss < loss)
        loss = torch.where(better, new_loss, loss)
        return _Point(
            torch.where(better[:, None, None], tried, best),
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

    def covariance(self) -> Tensor:
        """The inverse of the curvature of the loss at the start."""
        _, classes, width = self.start.shape
        inverse = torch.cholesky_inverse(self._factor(self.loss(self.start)[1]))
        return inverse.unflatten(2, (classes, width)).unflatten(1, (classes, width))

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
