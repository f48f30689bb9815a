"""Vectors of known and unknown class labels, and the classes that occur in a context."""

from typing import Literal

import torch
from torch import nn

from tabicl_linear.types import Bool, Float, Int, Tensor

LabelCode = Literal["scalar", "one_hot"]
ABSENT = -1e4
"""Logit of a class that does not occur in the context: its probability is zero in every dtype, and
it is finite, so that sums and differences of logits are never NaN."""


class ScalarLabels(nn.Linear):
    """psi_y(y) = w y + b of the class index (section 3.2); an unknown label is the context's mean.

    Args:
        dim: Width of a token.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(1, dim)

    def known(self, y: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        """The vectors of class indices."""
        return self(y.unsqueeze(-1).to(self.weight.dtype))

    def unknown(self, mean_label: Float[Tensor, " b"]) -> Float[Tensor, "b 1 d"]:
        """The vector of a mean context label."""
        return self(mean_label[:, None, None].to(self.weight.dtype))


class OneHotLabels(nn.Embedding):
    """A learned vector for each class and one for unknown labels: classes have no order.

    Vectors are drawn from U(-1, 1), as the weights of `ScalarLabels` are.

    Args:
        num_classes: Maximum number of classes of a table.
        dim: Width of a token.
    """

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__(num_classes + 1, dim)
        nn.init.uniform_(self.weight, -1, 1)

    def known(self, y: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        """Vectors of class indices."""
        return self(y.long())

    def unknown(self, mean_label: Float[Tensor, " b"]) -> Float[Tensor, "b 1 d"]:
        """The learned vector of an unknown label; the mean only gives the number of tasks."""
        return self.weight[-1].expand(len(mean_label), 1, -1)


Labels = ScalarLabels | OneHotLabels


def present_classes(
    y: Int[Tensor, "b n"], num_classes: int, earlier: Bool[Tensor, "b y"] | None = None
) -> Bool[Tensor, "b y"]:
    """Which classes occur among the labels of each task, or are already in `earlier`."""
    if earlier is None:
        earlier = torch.zeros(len(y), num_classes, dtype=torch.bool, device=y.device)
    return earlier.scatter(1, y.long(), True)


def without_absent(
    logits: Float[Tensor, "b q y"], present: Bool[Tensor, "b y"]
) -> Float[Tensor, "b q y"]:
    """The logits, with `ABSENT` for classes that do not occur."""
    return logits.where(present[:, None], ABSENT)
