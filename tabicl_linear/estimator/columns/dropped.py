"""Columns that nothing is learnt from."""

from collections.abc import Hashable
from dataclasses import dataclass

EMPTY, CONSTANT = "no training row has a value", "all training rows have the same value"


@dataclass(frozen=True)
class DroppedColumn:
    """A column without information.

    Attributes:
        name: Label of the column, or position where the table had no labels: as of all records.
        position: In the training table: as of all records.
        reason: Such as `CONSTANT`.
    """

    name: Hashable
    position: int
    reason: str
