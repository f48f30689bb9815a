"""How much a column tells about the classes."""

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from tabicl_linear.estimator.arrays import Float32Array, FloatArray, IntArray

NUM_BINS = 16
"""Equally frequent intervals into which numbers are sorted to be judged."""


def information(places: IntArray, classes: IntArray) -> float:
    """Mutual information in nats, less what a column that says nothing has on average.

    Places (bins or intervals) and classes are counted from 0; some may be empty.
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
    """A number for each different value, and one for missing values."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def p_value(gain: float, places: IntArray, classes: IntArray) -> float:
    """How likely places that say nothing have an `information` of `gain` or more.

    Twice the mutual information of all rows is then about chi-squared distributed (Wilks, 1938).
    """
    freedom = (len(np.unique(places)) - 1) * (len(np.unique(classes)) - 1)
    if freedom == 0:
        return 1.0
    return float(chi2.sf(2 * len(places) * gain + freedom, freedom))


def intervals(values: FloatArray | Float32Array) -> IntArray:
    """The interval of each number, of `NUM_BINS` equally frequent ones, or one for all NaN."""
    absent = np.isnan(values)
    inner = np.linspace(0, 1, NUM_BINS + 1)[1:-1]
    edges = np.unique(np.quantile(values[~absent], inner)) if not absent.all() else inner
    return np.where(absent, len(edges) + 1, np.searchsorted(edges, values, side="left"))
