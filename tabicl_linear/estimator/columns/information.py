"""How much a column tells about the classes."""

import numpy as np

from tabicl_linear.estimator.arrays import Float32Array, FloatArray, IntArray

NUM_BINS = 16
"""Equally frequent intervals into which numbers are sorted to be judged."""


def information(bins: IntArray, classes: IntArray) -> float:
    """Mutual information in nats, less what a column that says nothing has on average.

    Bins (or categories) and classes are counted from 0; some bins may be empty.
    """
    width = int(classes.max()) + 1
    counts = np.bincount(bins * width + classes, minlength=(int(bins.max()) + 1) * width)
    table = counts.reshape(-1, width).astype(np.float64)
    table = table[table.any(axis=1)]
    expected = table.sum(1, keepdims=True) * table.sum(0) / len(bins)
    ratio = np.where(table > 0, table / expected, 1.0)
    freedom = (len(table) - 1) * (width - 1)
    return float((table * np.log(ratio)).sum() - freedom / 2) / len(bins)


def chance(bins: IntArray, classes: IntArray) -> float:
    """Standard deviation of `information` where a column says nothing."""
    freedom = (len(np.unique(bins)) - 1) * (len(np.unique(classes)) - 1)
    return float((2 * freedom) ** 0.5 / (2 * len(bins)))


def intervals(values: FloatArray | Float32Array) -> IntArray:
    """The interval of each number, of `NUM_BINS` equally frequent ones, or one for all NaN."""
    absent = np.isnan(values)
    inner = np.linspace(0, 1, NUM_BINS + 1)[1:-1]
    edges = np.unique(np.quantile(values[~absent], inner)) if not absent.all() else inner
    return np.where(absent, len(edges) + 1, np.searchsorted(edges, values, side="left"))
