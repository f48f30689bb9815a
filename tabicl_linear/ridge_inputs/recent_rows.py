"""The last rows of a context, with what was predicted of them before their labels were known."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

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

    @classmethod
    def joined(cls, parts: Sequence["RecentRows"]) -> "RecentRows":
        """All tasks of the first part, then all of the next."""
        return cls(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def plus(self, shares: Float[Tensor, "b n y"], r: Float[Tensor, "b n y"]) -> "RecentRows":
        """With further rows, in place of the oldest.

        Args:
            shares: Predicted without knowing their labels.
            r: Their one-hot labels; zero for rows that do not count.
        """
        return self.after(shares, r, [r.shape[1]])[0]

    def after(
        self, shares: Float[Tensor, "b n y"], r: Float[Tensor, "b n y"], counts: Sequence[int]
    ) -> list["RecentRows"]:
        """With the first few of further rows, for several numbers of them; see `plus`."""
        is_known = r.any(-1)
        classes = torch.where(is_known, r.argmax(-1), NONE).short()
        new = RecentRows((shares * is_known.unsqueeze(-1)).float(), classes)
        every = [torch.cat(pair, dim=1) for pair in zip(self, new, strict=True)]
        kept = self.classes.shape[1]
        # Never a view of more rows than are kept: it would hold their memory.
        return [
            RecentRows(*(part[:, count : count + kept].clone() for part in every))
            for count in counts
        ]

    def class_map(
        self, present: Bool[Tensor, "b y"], start: Float[Tensor, "b y z"]
    ) -> Float[Tensor, "b y z"]:
        """What makes the logits that suit the kept rows best; see `fit_class_map`."""
        names = torch.arange(self.shares.shape[-1], device=self.classes.device)
        r = self.classes.unsqueeze(-1) == names
        return fit_class_map(self.shares.to(start), r.to(start), present, start)
