"""Divides the rows of a context: some grow trees, and all others solve the weights of leaves."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from tabicl_linear.estimator.arrays import IntArray

LEAST_GROWING, MOST_GROWING = 3000, 25_000
"""Bounds of the rows that grow trees in each half, which are a quarter of the table between these.

All other rows solve. In a table in pieces, the first `rows_that_grow` rows grow the trees."""
FEWEST_ROWS = 50
"""Contexts of fewer rows grow no trees."""
FEW_ROWS = 2000
"""Up to this number of rows a fit takes little time, so more divisions are cheap, and the features
that are fixed beforehand help most."""
ROWS_OF_TWO_MEMBERS = 4000
"""Up to this number of rows a second member is worth its second of CPU time
(docs/training_log.md)."""
MOST_ROUNDS = 4
"""Maximum number of rounds: no scheme has as many now, but saved states may have."""
HALVES = 2
"""Divisions of a round: each half grows trees in one of them."""

_Item = TypeVar("_Item")


class Scheme(NamedTuple):
    """How many members read the rows, and how often each divides them and grows trees.

    Attributes:
        members: Members of the ensemble.
        rounds: How many times each member divides its rows into halves.
        growths: How many times trees are grown on each half; one solution takes all of these.
    """

    members: int
    rounds: int
    growths: int


class Division(NamedTuple):
    """Indices of the rows that grow trees, and of all others, which solve; both in order."""

    growing: IntArray
    solving: IntArray


def scheme(num_rows: int) -> Scheme:
    """The scheme for a table with this number of rows, whether it comes at once or in pieces.

    For the same time, several members gain more than several rounds. But two members of one round
    are worse than one member of two, since each row is then left out of one solution only. Twice
    the trees in one solution take a quarter more time where it is made of products of rows, and
    eight times as much where it is made of sums over leaves.
    """
    if num_rows < FEWEST_ROWS:
        return Scheme(members=1, rounds=0, growths=0)
    if num_rows >= rows_that_grow():
        return Scheme(members=1, rounds=2, growths=1)
    if num_rows <= FEW_ROWS:
        return Scheme(members=2, rounds=3, growths=1)
    return Scheme(members=2 if num_rows <= ROWS_OF_TWO_MEMBERS else 1, rounds=2, growths=2)


def rows_that_grow() -> int:
    """How many of the first rows of a table in pieces grow trees, both halves together."""
    return 2 * LEAST_GROWING


def of_divisions(of_rounds: Sequence[_Item]) -> list[_Item]:
    """Repeat the item of each round, once for every division of the round."""
    return [item for item in of_rounds for _ in range(HALVES)]


def divisions(labels: IntArray, num_rounds: int, *, seed: int) -> tuple[Division, ...]:
    """`HALVES` divisions for each round: in each, rows of one half grow trees and all others solve.

    The halves have equally many rows of each class, up to one. In a long half only the first rows
    grow: as many as a quarter of the table, but no fewer than `LEAST_GROWING` and no more than
    `MOST_GROWING`. `labels` are class indices, and `seed` draws the halves.
    """
    most = max(LEAST_GROWING, min(len(labels) // 4, MOST_GROWING))
    parts = []
    for number in range(num_rounds):
        draws = np.random.default_rng([seed, number]).random(len(labels))
        # Rows go to the halves in turn, class by class, in random order within a class.
        half = np.empty(len(labels), dtype=np.int64)
        half[np.lexsort((draws, labels))] = np.arange(len(labels)) % HALVES
        for side in range(HALVES):
            growing = np.flatnonzero(half == side)[:most]
            parts.append(Division(growing, np.delete(np.arange(len(labels)), growing)))
    return tuple(parts)
