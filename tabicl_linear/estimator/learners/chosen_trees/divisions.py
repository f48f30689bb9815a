"""Which rows grow trees, and which are left to solve what the trees say."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from tabicl_linear.estimator.arrays import IntArray

LEAST_GROWING, MOST_GROWING = 3000, 25_000
"""Trees are grown on a quarter of the table in each half, but on no fewer and no more rows.

All others are solved. Of rows that come in pieces the first ones grow, `rows_that_grow`."""
FEWEST_ROWS = 50
"""In contexts of fewer rows no trees are grown."""
FEW_ROWS = 2000
"""A fit of no more rows takes little time: more divisions are cheap, and features that are fixed
beforehand help most."""
ROWS_OF_TWO_MEMBERS = 4000
"""Up to here a second member is worth its second of CPU time (docs/training_log.md)."""
MOST_ROUNDS = 4
"""More than any scheme has now: contexts that were divided so often have been saved."""
HALVES = 2
"""Divisions of a round: each half grows in one of them."""

_Item = TypeVar("_Item")


class Scheme(NamedTuple):
    """How often rows are seen, divided, and trees grown on each half.

    Attributes:
        members: Members of the ensemble that see the rows.
        rounds: How many times each divides them into halves.
        growths: How many times trees are grown on each half, for one solution with all of them.
    """

    members: int
    rounds: int
    growths: int


class Division(NamedTuple):
    """Indices of the rows of a context that trees are grown on, and of all others, in order."""

    growing: IntArray
    solving: IntArray


def scheme(num_rows: int) -> Scheme:
    """How often a table of so many rows is seen and divided, at once or in pieces.

    For the same time, several members gain more than several rounds, but two members of one round
    are worse than one of two: each row is then left out of one solution alone. Twice the trees in
    one solution cost a quarter more where it is made of products of rows, and eight times as much
    where it is made of sums over leaves.
    """
    if num_rows < FEWEST_ROWS:
        return Scheme(members=1, rounds=0, growths=0)
    if num_rows >= rows_that_grow():
        return Scheme(members=1, rounds=2, growths=1)
    if num_rows <= FEW_ROWS:
        return Scheme(members=2, rounds=3, growths=1)
    return Scheme(members=2 if num_rows <= ROWS_OF_TWO_MEMBERS else 1, rounds=2, growths=2)


def rows_that_grow() -> int:
    """Of a table in pieces, how many of the first rows grow trees, both halves together."""
    return 2 * LEAST_GROWING


def of_divisions(of_rounds: Sequence[_Item]) -> list[_Item]:
    """The items of the rounds, each once for every division of its round."""
    return [item for item in of_rounds for _ in range(HALVES)]


def divisions(labels: IntArray, num_rounds: int, *, seed: int) -> tuple[Division, ...]:
    """`HALVES` divisions for each round: in each, rows of one half grow and all others are solved.

    A half has as many rows of each class as the other, up to one. Of a long half only the first
    rows grow: a quarter of the table, but no fewer than `LEAST_GROWING` and no more than
    `MOST_GROWING`. `labels` are class indices, and the halves are drawn by the seed.
    """
    most = max(LEAST_GROWING, min(len(labels) // 4, MOST_GROWING))
    parts = []
    for number in range(num_rounds):
        draws = np.random.default_rng([seed, number]).random(len(labels))
        # By turns, through the classes one after the other in random order.
        half = np.empty(len(labels), dtype=np.int64)
        half[np.lexsort((draws, labels))] = np.arange(len(labels)) % HALVES
        for side in range(HALVES):
            growing = np.flatnonzero(half == side)[:most]
            parts.append(Division(growing, np.delete(np.arange(len(labels)), growing)))
    return tuple(parts)
