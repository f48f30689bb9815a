"""Which columns of a wide table each member of an ensemble sees: informative ones more often."""

import random
from typing import NamedTuple

import numpy as np

from tabicl_linear.estimator.arrays import BoolArray, Float32Array, FloatArray, IntArray
from tabicl_linear.estimator.columns.information import (
    bins,
    information,
    intervals,
    judged_rows,
    p_value_of_rare,
)

MAX_ROWS = 10_000
"""Maximum number of rows that columns are judged by, so that the time for a column does not grow
with the table."""
FEW_COLUMNS = 100
"""Tables with up to this many columns count all as informative: among 100 columns of noise, the
number of informative ones would be estimated with a standard error of 10."""


class Relevance(NamedTuple):
    """What every column alone says about the class.

    Attributes:
        gains: Information in nats, less what noise gives on average.
        p_values: How likely an uninformative column has at least as much information.
    """

    gains: FloatArray
    p_values: FloatArray

    @property
    def num_telling(self) -> int:
        """An estimate of how many columns are informative, even if only slightly.

        Half of the uninformative columns have a p-value above a half (Storey, 2002). All columns
        count if the estimate is most of them, or if they are too few for an estimate.
        """
        num_columns = len(self.p_values)
        count = max(0, num_columns - 2 * int(np.count_nonzero(self.p_values > 0.5)))
        return num_columns if num_columns <= FEW_COLUMNS or 2 * count > num_columns else count


def relevance(matrix: Float32Array, labels: IntArray, categorical: BoolArray) -> Relevance:
    """Judge every column of a table.

    The information is the mutual information of the class and the column's bin or category, less
    its mean for an uninformative column (Miller, 1955), so that columns of many categories are not
    preferred. Missing values have a bin of their own. At most `MAX_ROWS` rows are used.
    """
    rows = judged_rows(len(matrix), MAX_ROWS)
    matrix, labels = matrix[rows], labels[rows]
    classes = bins(labels)
    gains, p_values = list[float](), list[float]()
    for values, is_categorical in zip(matrix.T, categorical, strict=True):
        places = bins(values) if is_categorical else intervals(values)
        gains.append(information(places, classes))
        p_values.append(p_value_of_rare(places, classes))
    return Relevance(np.array(gains), np.array(p_values))


def choose_columns(
    relevances: Relevance, *, num_members: int, width: int, seed: int
) -> list[IntArray]:
    """The columns of each member, in ascending order: `width` of them, fewer than there are.

    Half of a member's places go to the most relevant columns, which all members see. The other
    columns are dealt to the members, each once. If there are too few places, only informative
    columns are dealt, and fewer columns are seen by all if that makes room for each of them. The
    remaining places go to columns drawn with probability 1 / (1 + rank).
    """
    num_columns, num_places, core = len(relevances.gains), num_members * width, width // 2
    rng = random.Random(seed)
    order = np.argsort(-relevances.gains, kind="stable")
    dealt = num_columns
    if core + (width - core) * num_members < num_columns:
        dealt = relevances.num_telling
        # The largest core that leaves each a place: (width - core) * members >= dealt - core.
        spare = num_places - dealt
        if spare >= 0 and num_members > 1:
            core = min(core, spare // (num_members - 1))
    places = width - core
    first = [*_drawn(core, dealt, rng), *_drawn(max(core, dealt), num_columns, rng)]
    chosen = []
    for member in range(num_members):
        ranks = first[: num_members * places][member::num_members]
        own = set(ranks)
        more = (rank for rank in _drawn(core, num_columns, rng) if rank not in own)
        ranks = [*range(core), *ranks, *(next(more) for _ in range(places - len(ranks)))]
        chosen.append(np.sort(order[ranks]))
    return chosen


def _drawn(start: int, stop: int, rng: random.Random) -> list[int]:
    """Ranks drawn one by one without replacement with probability 1 / (1 + rank)."""
    # Efraimidis and Spirakis (2006): the largest u^(1 / weight) comes first; keys are its -log.
    keys = {rank: (1 + rank) * rng.expovariate(1.0) for rank in range(start, stop)}
    return sorted(keys, key=keys.__getitem__)
