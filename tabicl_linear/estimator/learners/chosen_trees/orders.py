"""Orders of categories: by the classes of the rows that grow the trees, not by their codes.

A tree asks whether a number is small. Codes of categories are in an order that says nothing, and it
takes a question for each category to tell them apart; ordered by the classes, one may do (Breiman
et al., 1984, for two classes; Coppersmith et al., 1999, by the first principal direction of the
classes' shares for more). The order of a division is learnt from the rows that grow its trees, as
their questions are, so that the rows of the other half stay honest.
"""

from typing import NamedTuple

import torch

from tabicl_linear.types import Bool, Float, Int, Tensor

FEWEST, MOST = 3, 12
"""Categories of a column that is ordered. Of more there are rates of classes beside the codes,
which leave each row out; here a category of few rows would be placed by these rows alone."""
STRENGTH = 5.0
"""Rows of the mean that are added to those of a category."""
CLOSE = 1e-4
"""Standardised codes nearer than this are the same; two of them are 0.007 apart or more."""


class Orders(NamedTuple):
    """Columns of categories with scores in place of codes.

    Attributes:
        columns: Which columns.
        values: Their standardised codes in ascending order, padded with infinity.
        scores: Where each category stands, 0 between those of more and of less than the mean.
    """

    columns: Int[Tensor, " o"]
    values: Float[Tensor, "o k"]
    scores: Float[Tensor, "o k"]

    @classmethod
    def none(cls, like: Float[Tensor, "n m"]) -> "Orders":
        """Those of no column."""
        nothing = like.new_zeros(0, MOST)
        return cls(torch.zeros(0, dtype=torch.int32, device=like.device), nothing, nothing)

    def of_rows(self, z: Float[Tensor, "n m"]) -> Float[Tensor, "n o"]:
        """Scores of rows; 0 of categories that were not there."""
        cells = z[:, self.columns.long()].T.contiguous()
        place = torch.searchsorted(self.values, cells - CLOSE).clamp_(max=MOST - 1)
        is_known = (self.values.gather(1, place) - cells).abs() < CLOSE
        return self.scores.gather(1, place).where(is_known, 0.0).T


def learn_orders(
    z: Float[Tensor, "n m"], r: Float[Tensor, "n y"], categorical: Bool[Tensor, " m"]
) -> Orders:
    """The orders of the columns of few categories.

    Args:
        z: Standardised rows, float32.
        r: Their labels, one-hot, float64.
        categorical: Which columns hold category codes.
    """
    mean = r.mean(0)
    columns, values, scores = list[int](), list[Tensor](), list[Tensor]()
    for column in categorical.nonzero().flatten().tolist():
        distinct, codes = z[:, column].unique(return_inverse=True)
        if not FEWEST <= len(distinct) <= MOST:
            continue
        sums = r.new_zeros(len(distinct), r.shape[1]).index_add_(0, codes, r)
        counts = sums.sum(1, keepdim=True)
        shares = (sums + STRENGTH * mean) / (counts + STRENGTH) - mean
        direction = torch.linalg.svd(shares * counts.sqrt(), full_matrices=False)[2][0]
        direction = direction * direction[direction.abs().argmax()].sign()
        absent = MOST - len(distinct)
        columns.append(column)
        values.append(torch.nn.functional.pad(distinct, (0, absent), value=torch.inf))
        scores.append(torch.nn.functional.pad((shares @ direction).float(), (0, absent)))
    if not columns:
        return Orders.none(z)
    places = torch.tensor(columns, dtype=torch.int32, device=z.device)
    return Orders(places, torch.stack(values), torch.stack(scores))
