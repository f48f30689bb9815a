"""What each column says about the classes, as sums over context rows that add.

A context row must not see its own label. So rows belong to folds, sums are kept for each fold, and
a context row reads the sums of all other folds (cross-fitting); other rows read those of all.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from tabicl_linear.types import Bool, Float, Int, Tensor

BINS = 16
"""Of the values of a column; missing ones have a bin of their own beside them."""
CLASSES = 10
"""Classes that are told apart; of more, the most frequent ones and all others together."""
FOLDS = 5
MOST_SORTED = 4096
"""Rows, evenly spread over the context, by which values are divided into bins."""


class ClassStatistics(NamedTuple):
    """Sums over the rows of a context; constant in size.

    Attributes:
        edges: Lower edges of all bins but the first; +inf where a column has fewer values.
        slots: Slot of each class of the table; e is how many classes there are.
        counts: Rows in each fold, bin and slot; the last bin is of missing values.
        sums: Sum of the present values and of their squares, in each fold and slot.
    """

    edges: Float[Tensor, "b m g"]
    slots: Int[Tensor, "b e"]
    counts: Float[Tensor, "b k m i y"]
    sums: Float[Tensor, "b k m 2 y"]

    @classmethod
    def empty(
        cls, z: Float[Tensor, "b c m"], present: Bool[Tensor, "b c m"], slots: Int[Tensor, "b e"]
    ) -> "ClassStatistics":
        """Before any row has been added: bins are divided by values alone, not by labels.

        Args:
            z: Standardised rows of the context.
            present: Which cells are not missing.
            slots: Slot of each class, as `class_slots` gives them.
        """
        b, c, m = z.shape
        step = -(-c // MOST_SORTED)
        edges = _edges(z[:, ::step].masked_fill(~present[:, ::step], torch.inf))
        counts = torch.zeros(b, FOLDS, m, BINS + 1, CLASSES, dtype=torch.float64, device=z.device)
        return cls(edges, slots, counts, counts[..., :2, :].clone())

    def plus(
        self,
        z: Float[Tensor, "b n m"],
        present: Bool[Tensor, "b n m"],
        y: Int[Tensor, "b n"],
        fold: Int[Tensor, "b n"],
    ) -> "ClassStatistics":
        """With more rows. Those of two parts of a context add.

        Args:
            z: Standardised rows.
            present: Which cells are not missing.
            y: Their classes.
            fold: Their folds, 0 to `FOLDS - 1`.
        """
        b, _, m = z.shape
        slot = self.slots.gather(1, y)
        place = fold * CLASSES + slot
        where = self.bins(z, present) * (FOLDS * CLASSES) + place.unsqueeze(-1)
        flat = z.new_zeros(b, m, (BINS + 1) * FOLDS * CLASSES, dtype=torch.float64)
        flat.scatter_add_(2, where.mT, torch.ones_like(where.mT, dtype=torch.float64))
        counts = flat.view(b, m, BINS + 1, FOLDS, CLASSES).movedim(3, 1)
        one_hot = F.one_hot(place, FOLDS * CLASSES).double()
        values = torch.stack([z, z.square()], dim=-1).double() * present.unsqueeze(-1)
        sums = torch.einsum("bnp,bnmi->bpmi", one_hot, values)
        sums = sums.unflatten(1, (FOLDS, CLASSES)).movedim(2, -1)
        return self._replace(counts=self.counts + counts, sums=self.sums + sums)

    def bins(
        self, z: Float[Tensor, "b n m"], present: Bool[Tensor, "b n m"]
    ) -> Int[Tensor, "b n m"]:
        """Bin of each cell."""
        bins = torch.searchsorted(self.edges, z.mT.contiguous(), right=True).mT
        return bins.masked_fill(~present, BINS)

    def seen(self) -> "ClassStatistics":
        """What rows read, in place of folds: rows of fold i the i-th sums, other rows the last."""
        counts, sums = (
            torch.cat([part.sum(1, keepdim=True) - part, part.sum(1, keepdim=True)], dim=1)
            for part in (self.counts, self.sums)
        )
        return self._replace(counts=counts, sums=sums)


def class_slots(labels: Float[Tensor, "b e"]) -> Int[Tensor, "b e"]:
    """Slot of each class: its number, or of more than `CLASSES` its rank; the rarest share one.

    Args:
        labels: Context rows of each class.
    """
    count = labels.shape[1]
    if count <= CLASSES:
        return torch.arange(count, device=labels.device).expand_as(labels)
    order = labels.sort(dim=1, descending=True, stable=True).indices
    return order.argsort(1).clamp(max=CLASSES - 1)


def folds(num_tasks: int, num_rows: int, first: int = 0) -> Int[Tensor, "b n"]:
    """Folds of context rows, by turns; rows are expected in random order.

    Args:
        num_tasks: How many tasks.
        num_rows: How many rows.
        first: Number of the first of them in the context.
    """
    return (torch.arange(first, first + num_rows) % FOLDS).expand(num_tasks, -1)


def _edges(z: Float[Tensor, "b c m"]) -> Float[Tensor, "b m g"]:
    """Middles between the values of columns of few values, else between quantiles.

    Args:
        z: Standardised rows, +inf where a cell is missing.
    """
    # Values that are sorted last, and infinite, are missing.
    values = z.mT.sort(-1).values
    num_present = values.isfinite().sum(-1, keepdim=True)
    middles = (values[..., 1:] + values[..., :-1]) / 2
    apart = (values[..., 1:] > values[..., :-1]) & values[..., 1:].isfinite()
    distinct = middles.masked_fill(~apart, torch.inf).sort(-1).values[..., : BINS - 1]
    distinct = F.pad(distinct, (0, BINS - 1 - distinct.shape[-1]), value=torch.inf)
    if not middles.shape[-1]:
        return distinct
    share = torch.arange(1, BINS, device=z.device)
    place = (num_present * share // BINS - 1).clamp(0, middles.shape[-1] - 1)
    is_few = apart.sum(-1, keepdim=True) < BINS
    return torch.where(is_few, distinct, middles.gather(-1, place)).contiguous()
