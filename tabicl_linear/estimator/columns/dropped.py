"""Columns from which nothing can be learnt."""

from collections.abc import Hashable
from dataclasses import dataclass

EMPTY, CONSTANT = "no training row has a value", "all training rows have the same value"


@dataclass(frozen=True)
class DroppedColumn:
    """A column without information; `reason` says why, for example `CONSTANT`."""

    name: Hashable
    position: int
    reason: str
