"""The last rows of a context, with the predictions made before their labels were read."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.class_map import fit_class_map
from tabicl_linear.types import Bool, Float, Int, Tensor

MOST = 1024
"""Maximum number of rows. Older rows were predicted by solutions of fewer rows."""
NONE = -1
"""Stands for the class of a row that does not count."""


class RecentRows(NamedTuple):
    """Predicted class shares and classes of the last rows; constant in size.

    Attributes:
        shares: Shares that the mixture of sets predicted, float32; zero for rows that do not count.
        classes: Class indices of the rows, int16, latest row last; `NONE` for rows that do not
            count, and for places without a row yet.
    """

    shares: Float[Tensor, "b k y"]
    classes: Int[Tensor, "b k"]

    @classmethod
    def empty(cls, like: Float[Tensor, "b n f"], num_classes: int) -> "RecentRows":
        """The value before the first row, for as many tasks as `like` has, on its device."""
        shares = like.new_zeros(len(like), MOST, num_classes, dtype=torch.float32)
        classes = torch.full_like(shares[..., 0], NONE, dtype=torch.int16)
        return cls(shares, classes)

    @classmethod
    def joined(cls, parts: Sequence["RecentRows"]) -> "RecentRows":
        """All tasks of the first part, then all of the next."""
        return cls(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def plus(self, shares: Float[Tensor, "b n y"], targets: Float[Tensor, "b n y"]) -> "RecentRows":
        """The value after further rows, which replace the oldest.

        Args:
            shares: Shares predicted for the rows, before their labels were read.
            targets: Their one-hot labels; zero for rows that do not count.
        """
        counts = targets.any(-1)  # [b n]
        classes = torch.where(counts, targets.argmax(-1), NONE).short()  # [b n]
        added = RecentRows((shares * counts.unsqueeze(-1)).float(), classes)
        size = self.classes.shape[1]
        every = (torch.cat(pair, dim=1) for pair in zip(self, added, strict=True))
        # Copied, since a view would keep the memory of the older rows.
        return RecentRows(*(part[:, -size:].clone() for part in every))

    def class_map(
        self, present: Bool[Tensor, "b y"], start: Float[Tensor, "b y z"]
    ) -> Float[Tensor, "b y z"]:
        """The class map that suits these rows best; see `fit_class_map`."""
        names = torch.arange(self.shares.shape[-1], device=self.classes.device)
        targets = self.classes.unsqueeze(-1) == names  # [b k y]
        return fit_class_map(self.shares.to(start), targets.to(start), present, start)
