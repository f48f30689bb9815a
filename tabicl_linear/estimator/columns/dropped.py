"""Columns that nothing is learnt from."""

from collections.abc import Hashable
from dataclasses import dataclass

EMPTY, CONSTANT = "no training row has a value", "all training rows have the same value"


@dataclass(frozen=True)
class DroppedColumn:
    """A column without information; `reason` is one such as `CONSTANT`."""

    name: Hashable
    position: int
    reason: str
