"""Logits from predicted class shares: a linear function of all shares, fitted to each context.

Least squares on class indicators masks classes that lie between others, and the share of a rare
class seldom reaches that of a common one. Left-out rows of a context show both faults, and a
logistic regression of their labels on their predicted shares corrects them (stacked generalisation,
Wolpert 1992). The logits of these rows themselves come from a regression on the other rows: a
single step of Newton's method from the regression on all (approximate leave-one-out, Rad and Maleki
2020).
"""

from typing import NamedTuple

import torch

from tabicl_linear.kernels import logistic
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.logistic import LogisticProblem, is_looked_at_freely
from tabicl_linear.ridge_inputs.devices import most_at_once
from tabicl_linear.types import Bool, Float, Tensor

SHARE_PENALTY = 0.2
"""Penalty on the squared distance of a factor from its start, which is of the order of ten."""
BIAS_PENALTY = 2.0
"""Penalty on a squared constant, in units of logits."""


def scaled(confidence: Float[Tensor, "b 1"], num_classes: int) -> Float[Tensor, "b y z"]:
    """The map that multiplies every share by the same factor.

    Dimension z has a factor for each class, and then a constant.
    """
    return confidence.unsqueeze(-1) * torch.eye(
        num_classes, num_classes + 1, dtype=confidence.dtype, device=confidence.device
    )


def mapped(
    shares: Float[Tensor, "b n y"], class_map: Float[Tensor, "b y z"]
) -> Float[Tensor, "b n y"]:
    """Logits that the map makes of the shares of rows."""
    logits: Tensor = shares @ class_map[..., :-1].mT + class_map[:, None, :, -1]
    return logits


class FittedMap(NamedTuple):
    """A map, and what is needed to leave out rows that it was fitted to.

    Attributes:
        class_map: The map.
        present: Which classes the context has.
        inverse_curvature: Inverse curvature of the loss, for the classes up to the last one that
            any task has.
    """

    class_map: Float[Tensor, "b y z"]
    present: Bool[Tensor, "b y"]
    inverse_curvature: Float[Tensor, "b i i"]

    @classmethod
    def of(
        cls,
        class_map: Float[Tensor, "b y z"],
        shares: Float[Tensor, "b n y"],
        targets: Float[Tensor, "b n y"],
        present: Bool[Tensor, "b y"],
    ) -> "FittedMap":
        """The value for a map that `fit_class_map` fitted to these shares, labels and classes."""
        problem = _problem(shares, targets, present, class_map)
        return cls(class_map, present, chosen(logistic.inverse_curvature)(problem))

    def left_out(
        self, shares: Float[Tensor, "b n y"], targets: Float[Tensor, "b n y"]
    ) -> Float[Tensor, "b n y"]:
        """Logits of rows that the map was fitted to, each as if it had not been among them.

        Args:
            shares: Predicted shares of the rows.
            targets: Their one-hot labels.
        """
        problem = _problem(shares, targets, self.present, self.class_map)
        logits = chosen(logistic.left_out)(problem, self.inverse_curvature)
        return torch.cat([logits, mapped(shares, self.class_map)[..., logits.shape[-1] :]], dim=-1)


def fit_class_map(
    shares: Float[Tensor, "b n y"],
    targets: Float[Tensor, "b n y"],
    present: Bool[Tensor, "b y"],
    start: Float[Tensor, "b y z"],
) -> Float[Tensor, "b y z"]:
    """The map with the least penalised log-loss, by Newton's method; never worse than its start.

    It stays at its start if the rows do not `tell_apart` classes. The only row of a class is
    predicted from rows of other classes alone, and a map fitted to such rows would swap classes.
    Where it would swap them all the same, it is `never_reversed`.

    Args:
        shares: Predictions of left-out rows, float64.
        targets: Their one-hot labels; zero for rows that do not count, whose shares are zero, too.
        present: Which classes the context has; others keep their start.
        start: Where the search begins, and what the penalty pulls towards.
    """
    rows, classes, width = *shares.shape[1:], start.shape[2]
    some = most_at_once(start.device, rows * classes * width)
    maps = start.clone()
    tasks = zip(*(part.split(some) for part in (shares, targets, present, start)), strict=True)
    for task, of_tasks in zip(tasks, maps.split(some), strict=True):
        best = chosen(logistic.fitted)(_problem(*task))
        count = best.shape[1]
        of_tasks[:, :count, :count] = best[..., :-1]
        of_tasks[:, :count, -1] = best[..., -1]
    maps = torch.where(tell_apart(targets)[:, None, None], maps, start)
    return never_reversed(maps, targets, present)


def never_reversed(
    maps: Float[Tensor, "b y z"], targets: Float[Tensor, "b n y"], present: Bool[Tensor, "b y"]
) -> Float[Tensor, "b y z"]:
    """Maps, but constants in place of those by which a higher share of a class lowers its logit.

    Features that tell nothing predict the mean of the other rows, which is lowest for the class of
    the row that is left out. A map fitted to such shares reverses them, and a new row that is like
    a single row of the context would get any class but that row's. The constants are the logits of
    the class shares, with one more row of each class.

    Args:
        maps: Maps that were fitted to left-out rows.
        targets: One-hot labels of these rows; zero for rows that do not count.
        present: Which classes the context has; others keep their map.
    """
    factors = maps[..., :-1] * (present[:, None] & present[:, :, None])
    # The trace of the factors once the mean over classes is taken off, which no softmax sees.
    own = factors.diagonal(dim1=1, dim2=2).sum(-1) - factors.sum((1, 2)) / present.sum(-1)
    logits = (targets.sum(1).to(maps) + 1.0).log().log_softmax(-1)
    constants = torch.nn.functional.pad(logits.unsqueeze(-1), (logits.shape[1], 0))
    is_reversed = (own < 0)[:, None, None] & present[..., None]
    return torch.where(is_reversed, constants, maps)


def tell_apart(targets: Float[Tensor, "b n y"]) -> Bool[Tensor, " b"]:
    """Whether left-out rows can show how classes differ: two classes have two rows or more."""
    return (targets.sum(1) >= 2).sum(-1) >= 2


def _problem(
    shares: Tensor, targets: Tensor, present: Tensor, class_map: Tensor
) -> LogisticProblem:
    """The logistic regression for the classes up to the last one that any task has."""
    columns = slice(_num_classes(present))
    targets = targets[..., columns]
    # The last column is one, or zero for rows that do not count.
    x = torch.cat([shares[..., columns], targets.sum(-1, keepdim=True)], dim=-1)
    start = torch.cat([class_map[:, columns, columns], class_map[:, columns, -1:]], dim=-1)
    penalty = torch.full_like(start[0, 0], SHARE_PENALTY)
    penalty[-1] = BIAS_PENALTY
    return LogisticProblem(x, targets, present[:, columns], start, penalty)


def _num_classes(present: Bool[Tensor, "b y"]) -> int:
    """Number of classes up to the last one that any task has; all if that needs a wait."""
    if not is_looked_at_freely(present.device):
        return present.shape[1]
    return int(present.any(0).nonzero().max()) + 1
