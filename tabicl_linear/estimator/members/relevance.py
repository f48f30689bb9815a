"""Which columns of a wide table each member of an ensemble sees: informative ones more often."""

import random

import numpy as np

from tabicl_linear.estimator.arrays import BoolArray, Float32Array, FloatArray, IntArray
from tabicl_linear.estimator.columns.information import bins, information, intervals, judged_rows

MAX_ROWS = 10_000
"""Rows that columns are judged by, so that the cost for a column does not grow with the table."""


def relevance(matrix: Float32Array, labels: IntArray, categorical: BoolArray) -> FloatArray:
    """Information of every column alone about the class, in nats, up to its own noise.

    This is the mutual information of the class and the column's bin or category, less what it is
    on average for a column that says nothing (Miller, 1955), so columns of many categories are
    not preferred. A missing value is a bin of its own. At most `MAX_ROWS` rows are used.
    """
    rows = judged_rows(len(matrix), MAX_ROWS)
    matrix, labels = matrix[rows], labels[rows]
    classes = bins(labels)
    return np.array(
        [
            information(bins(values) if is_categorical else intervals(values), classes)
            for values, is_categorical in zip(matrix.T, categorical, strict=True)
        ]
    )


def choose_columns(
    scores: FloatArray, *, num_members: int, width: int, seed: int
) -> list[IntArray]:
    """The columns of each member, in ascending order; each has `width`, fewer than there are.

    Half of a member's places (fewer if not all columns would find a place otherwise) go to the
    most relevant columns, which all members see. The other columns are dealt out once, if there
    are places for all of them; the remaining places go to columns drawn with probability
    1 / (1 + rank).
    """
    num_columns = len(scores)
    rng = random.Random(seed)
    order = np.argsort(-scores, kind="stable")
    # The most that leaves every column a place: (width - core) * members >= columns - core.
    spare = num_members * width - num_columns
    core = width // 2
    if spare >= 0 and num_members > 1:
        core = min(core, spare // (num_members - 1))
    places = width - core
    first = _drawn(core, num_columns, rng)[: num_members * places]
    chosen = []
    for member in range(num_members):
        ranks = first[member::num_members]
        own = set(ranks)
        more = (rank for rank in _drawn(core, num_columns, rng) if rank not in own)
        ranks = [*range(core), *ranks, *(next(more) for _ in range(places - len(ranks)))]
        chosen.append(np.sort(order[ranks]))
    return chosen


def _drawn(start: int, stop: int, rng: random.Random) -> list[int]:
    """Ranks drawn one by one without replacement with probability 1 / (1 + rank)."""
    # Efraimidis and Spirakis (2006): the largest u^(1 / weight) is drawn first; here its -log.
    keys = {rank: (1 + rank) * rng.expovariate(1.0) for rank in range(start, stop)}
    return sorted(keys, key=keys.__getitem__)
