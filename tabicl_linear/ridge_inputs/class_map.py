"""Logits from predicted class shares: a linear function of all shares, fitted to each context.

Least squares on class indicators masks classes that lie between others, and the share of a rare
class seldom reaches that of a common one. Rows that are left out of a context show both, and a
logistic regression of their labels on their predicted shares mends them (stacked generalisation,
Wolpert 1992).
"""

import torch

from tabicl_linear.types import Bool, Float, Tensor

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


def fit_class_map(
    shares: Float[Tensor, "b n y"],
    r: Float[Tensor, "b n y"],
    present: Bool[Tensor, "b y"],
    start: Float[Tensor, "b y z"],
) -> Float[Tensor, "b y z"]:
    """The map of least penalised log-loss, by Newton's method; never worse than its start.

    Args:
        shares: Predictions of rows that were left out, float64.
        r: Their one-hot labels; zero for rows that do not count, whose shares are zero too.
        present: Classes that the context has; others keep their start.
        start: Where the search begins, and what the penalty pulls to.
    """
    num_classes = int(present.any(0).nonzero().max()) + 1
    kept = [*range(num_classes), -1]
    search = _Search(
        shares[..., :num_classes],
        r[..., :num_classes],
        present[:, :num_classes],
        start[:, :num_classes][..., kept],
    )
    found = start.clone()
    found[:, :num_classes, kept] = search.run()
    return found


class _Search:
    """Newton's method on all tasks, each with a step of its own."""

    def __init__(self, shares: Tensor, r: Tensor, present: Tensor, start: Tensor) -> None:
        # One, but for rows that do not count.
        self.x = torch.cat([shares, r.sum(-1, keepdim=True)], dim=-1)
        self.r, self.start = r, start
        self.absent = ~present[:, None]
        self.penalty = torch.full_like(start[0, 0], SHARE_PENALTY)
        self.penalty[-1] = BIAS_PENALTY

    def run(self) -> Tensor:
        """The best map of each task."""
        best, size = self.start, torch.ones_like(self.start[:, 0, 0])
        loss, probabilities = self.loss(best)
        searching = torch.ones_like(size, dtype=torch.bool)
        for _ in range(ITERATIONS):
            step, gain = self.step(best, probabilities)
            tried = best - size[:, None, None] * step
            new_loss, new_probabilities = self.loss(tried)
            better = searching & (new_loss < loss)
            loss = torch.where(better, new_loss, loss)
            best = torch.where(better[:, None, None], tried, best)
            probabilities = torch.where(better[:, None, None], new_probabilities, probabilities)
            size = torch.where(better, torch.ones_like(size), size / 4)
            searching = searching & (gain > ENOUGH * (1 + loss))
            if not searching.any():
                break
        return best

    def loss(self, class_map: Tensor) -> tuple[Tensor, Tensor]:
        """Penalised log-loss of each task, and the probabilities."""
        logits = (self.x @ class_map.mT).masked_fill(self.absent, -torch.inf)
        log_probabilities = logits.log_softmax(-1)
        log_loss = -(log_probabilities.masked_fill(self.absent, 0) * self.r).sum((1, 2))
        penalty = (self.penalty * (class_map - self.start).square()).sum((1, 2)) / 2
        return log_loss + penalty, log_probabilities.exp()

    def step(self, class_map: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Newton's step, and what it would gain if the loss were quadratic."""
        b, classes, width = class_map.shape
        slope = (probabilities - self.r).mT @ self.x + self.penalty * (class_map - self.start)
        outer = (probabilities.unsqueeze(-1) * self.x.unsqueeze(2)).flatten(2)
        curvature = -(outer.mT @ outer).view(b, classes, width, classes, width)
        own = (outer.mT @ self.x).unflatten(1, (classes, width))
        curvature.diagonal(dim1=1, dim2=3).add_(own.movedim(1, -1))
        curvature = curvature.flatten(3).flatten(1, 2)
        curvature.diagonal(dim1=1, dim2=2).add_(self.penalty.repeat(classes))
        factor = torch.linalg.cholesky(curvature)
        step = torch.cholesky_solve(slope.flatten(1).unsqueeze(-1), factor).view(b, classes, width)
        return step, (slope * step).sum((1, 2)) / 2
