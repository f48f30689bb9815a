"""The last rows of a context, with what was predicted of them before their labels were known."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from tabicl_linear.ridge_inputs.class_map import fit_class_map
from tabicl_linear.types import Bool, Float, Int, Tensor

MOST = 1024
"""Rows that are kept. Older ones were predicted by solutions of fewer rows."""
NONE = -1
"""In place of the class of a row that does not count."""


class RecentRows(NamedTuple):
    """Predicted class shares and classes of the last rows; constant in size.

    Attributes:
        shares: Of the mixture, in float32; zero for rows that do not count.
        classes: Their labels, in int16, the last row's last; `NONE` for rows that do not count and
            where there have not been as many rows.
    """

    shares: Float[Tensor, "b k y"]
    classes: Int[Tensor, "b k"]

    @classmethod
    def empty(cls, like: Float[Tensor, "b n f"], num_classes: int) -> "RecentRows":
        """Before the first row, for as many tasks as `like` has, on its device."""
        shares = like.new_zeros(len(like), MOST, num_classes, dtype=torch.float32)
        classes = torch.full_like(shares[..., 0], NONE, dtype=torch.int16)
        return cls(shares, classes)

    def plus(self, shares: Float[Tensor, "b n y"], r: Float[Tensor, "b n y"]) -> "RecentRows":
        """With further rows, in place of the oldest.

        Args:
            shares: Predicted without knowing their labels.
            r: Their one-hot labels; zero for rows that do not count.
        """
        counts = r.any(-1)
        classes = torch.where(counts, r.argmax(-1), NONE)
        new = RecentRows((shares * counts.unsqueeze(-1)).float(), classes.short())
        # Never a view of more rows than are kept: it would hold their memory.
        n, first = r.shape[1], max(r.shape[1] - self.classes.shape[1], 0)
        pairs = zip(self, new, strict=True)
        return RecentRows(*(torch.cat([old[:, n:], part[:, first:]], dim=1) for old, part in pairs))

    def class_map(
        self, present: Bool[Tensor, "b y"], start: Float[Tensor, "b y z"]
    ) -> Float[Tensor, "b y z"]:
        """What makes the logits that suit the kept rows best; see `fit_class_map`."""
        of_class = F.one_hot(self.classes.long().clamp(min=0), self.shares.shape[-1])
        r = of_class * (self.classes != NONE).unsqueeze(-1)
        return fit_class_map(self.shares.to(start), r.to(start), present, start)
