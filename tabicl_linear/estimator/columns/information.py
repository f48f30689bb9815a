"""How much a column says about the classes, and whether that may be chance."""

from collections.abc import Sequence
from itertools import compress
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc
from scipy.stats import false_discovery_control, gamma

from tabicl_linear.estimator.arrays import Float32Array, FloatArray, IntArray

NUM_BINS = 16
"""Number of equally frequent intervals into which numbers are sorted to be judged."""
FALSE_DISCOVERIES = 0.05
"""Expected share of uninformative columns among those that are kept (Benjamini and Hochberg, 1995).
If all columns are uninformative, it is the chance that any is kept."""

FEWEST_ROWS = 4
"""With fewer rows, the variance of Pearson's statistic over all orders is not defined."""
ROUNDING = 1e-12

Item = TypeVar("Item")


def judged_rows(num_rows: int, most: int) -> IntArray | slice:
    """The rows that columns are judged by: all or, in a long table, `most` of them.

    The latter are indices in random order, the same at every call.
    """
    if num_rows <= most:
        return slice(None)
    return np.random.default_rng(0).choice(num_rows, most, replace=False)


def telling(items: Sequence[Item], gains: Sequence[float], p_values: Sequence[float]) -> list[Item]:
    """The items whose gain in information is more than chance, largest gain first."""
    are_telling = false_discovery_control(p_values) < FALSE_DISCOVERIES if p_values else ()
    pairs = compress(zip(gains, items, strict=True), are_telling)
    return [item for _, item in sorted(pairs, key=lambda pair: -pair[0])]


def information(places: IntArray, classes: IntArray) -> float:
    """Mutual information in nats, less its mean for an uninformative column.

    Places (bins or intervals) and classes are numbered from 0; some may have no rows.
    """
    width = int(classes.max()) + 1
    counts = np.bincount(places * width + classes, minlength=(int(places.max()) + 1) * width)
    table = counts.reshape(-1, width).astype(np.float64)
    table = table[table.any(axis=1)]
    expected = table.sum(1, keepdims=True) * table.sum(0) / len(places)
    ratio = np.where(table > 0, table / expected, 1.0)
    freedom = (len(table) - 1) * (width - 1)
    return float((table * np.log(ratio)).sum() - freedom / 2) / len(places)


def bins(values: npt.NDArray[np.generic]) -> IntArray:
    """The number of each value among the different ones; missing values have one, too."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def p_value(gain: float, places: IntArray, classes: IntArray) -> float:
    """The probability that uninformative places have an `information` of `gain` or more.

    For such places, twice the mutual information times the number of rows has about a chi-squared
    distribution (Wilks, 1938).
    """
    freedom = (len(np.unique(places)) - 1) * (len(np.unique(classes)) - 1)
    if freedom == 0:
        return 1.0
    # `scipy.stats.chi2.sf` calls this; without its checks it is a hundred times as fast.
    return float(chdtrc(freedom, max(2 * len(places) * gain + freedom, 0.0)))


def p_value_of_rare(places: IntArray, classes: IntArray) -> float:
    """The probability that uninformative places seem as informative; each may have few rows.

    Over all orders of the classes, the mean and variance of Pearson's statistic are known (Dawson,
    1954; Lewis, Saunders and Westcott, 1984). Its distribution is approximated by the gamma
    distribution with the same two; chi-squared does not fit where places have few rows.
    """
    (_, row), (_, column) = (np.unique(each, return_inverse=True) for each in (places, classes))
    rows, columns, total = np.bincount(row), np.bincount(column), len(row)
    if len(columns) < 2 or not 1 < len(rows) < total or total < FEWEST_ROWS:
        return 1.0
    cells, counts = np.unique(row * len(columns) + column, return_counts=True)
    expected = rows[cells // len(columns)] * columns[cells % len(columns)]
    statistic = total * float((counts**2 / expected).sum() - 1)
    mean = total * (len(rows) - 1) * (len(columns) - 1) / (total - 1)
    even, uneven = 2 * total / (total - 3), total**2 / (total - 1)
    for margin in (rows, columns):
        size = len(margin)
        excess = (total * (1 / margin).sum() - size**2) / (total - 2)
        even *= (size - 1) * (total - size) / (total - 1) - excess
        uneven *= excess
    variance = even + uneven
    if variance < ROUNDING * mean**2:  # it is the same in every order
        return 1.0
    return float(gamma.sf(statistic, mean**2 / variance, scale=variance / mean))


def intervals(values: FloatArray | Float32Array) -> IntArray:
    """The interval of each number among `NUM_BINS` equally frequent ones; NaN has its own."""
    absent = np.isnan(values)
    inner = np.linspace(0, 1, NUM_BINS + 1)[1:-1]
    edges = np.unique(np.quantile(values[~absent], inner)) if not absent.all() else inner
    return np.where(absent, len(edges) + 1, np.searchsorted(edges, values, side="left"))
