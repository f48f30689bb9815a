"""How often each class occurs in each category of a column: target encoding.

Rates are shrunk towards that of the whole column, as in a random-effects model: by the ratio of the
variance within categories to that between them (Micci-Barreca, 2001). Columns whose categories do
not differ get no rates at all. Only counts and sums are needed.

Training rows are encoded by the rows of other folds. Unlike in scikit-learn's `TargetEncoder`,
rates are shrunk towards the same value in all folds: the mean of the other folds would give away
the label of a row that is alone in its category.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import f as f_distribution

from tabicl_linear.estimator.arrays import BoolArray, FloatArray, IntArray
from tabicl_linear.estimator.columns.category_names import category_names, looked_up

MIN_CATEGORIES = 12
"""Columns with more categories than this get rates; with fewer, the codes say as much."""
MAX_RATES = 4096
"""Maximum number of categories whose rates are kept; rarer ones have rates close to the mean."""
MAX_CLASSES = 8
"""Maximum number of classes that get rates: the most frequent ones."""
NUM_FOLDS = 5
LEAST_STRENGTH = 1.0
"""Least number of rows of the mean rate to add: a category with one row is never certain."""
SIGNIFICANCE = 0.01
"""Chance that a column gets rates although classes do not differ between its categories."""


@dataclass(frozen=True)
class RateColumn:
    """Encodes the category of a row by the rate of one class in it.

    Attributes:
        label: Index of the class.
        rates: Rate in each category (as text) of the training rows.
        missing: Rate where the category is missing.
        mean: Rate in all training rows, which unknown categories get.
        strength: How many rows of the mean rate are added to those of every category.
    """

    name: Hashable
    position: int
    label: int
    rates: dict[str, float]
    missing: float
    mean: float
    strength: float

    def encode(self, cells: pd.Series) -> FloatArray:
        """Rates in float64; the mean rate where the category is unknown."""
        names = category_names(cells)
        rates = looked_up(names, self.rates)
        absent = pd.isna(names)
        rates[np.isnan(rates)] = self.mean
        rates[absent] = self.missing
        return rates

    def cross_fitted(self, labels: IntArray, cells: pd.Series) -> FloatArray:
        """Rates of the training rows, each without the rows of its own fold."""
        codes, _ = numbered_categories(cells)
        return cross_fitted(codes, labels == self.label, self.mean, self.strength)


class ClassRate(NamedTuple):
    """The rates of one class, one for each category; see `RateColumn` for the other fields."""

    label: int
    rates: FloatArray
    mean: float
    strength: float


def fit_rates(cells: pd.Series, position: int, labels: IntArray) -> tuple[RateColumn, ...]:
    """Rates of the classes in a training column's categories; empty if they are uninformative."""
    codes, distinct = numbered_categories(cells)
    if len(distinct) <= MIN_CATEGORIES:
        return ()
    place, is_missing = (cells.name, position), pd.isna(distinct)
    columns = []
    for rate in class_rates(codes, labels):
        missing = float(rate.rates[is_missing][0]) if is_missing.any() else rate.mean
        rates = kept_rates(codes, distinct, rate)
        columns.append(RateColumn(*place, rate.label, rates, missing, rate.mean, rate.strength))
    return tuple(columns)


def class_rates(codes: IntArray, labels: IntArray) -> Iterator[ClassRate]:
    """Rates of classes in categories numbered from 0, if they differ by more than chance."""
    counts = np.bincount(codes)
    for label in rated_classes(labels):
        hits = labels == label
        sums = np.bincount(codes, weights=hits).astype(np.float64)
        strength = _strength(sums, counts)
        if strength is not None:
            mean = float(np.mean(hits))
            yield ClassRate(label, shrunk(sums, counts, mean, strength), mean, strength)


def rated_classes(labels: IntArray) -> list[int]:
    """The classes whose rates encode columns: the most frequent ones."""
    frequent = np.argsort(-np.bincount(labels), kind="stable")
    # With two classes, the rate of one determines that of the other.
    return [1] if len(frequent) == 2 else sorted(frequent[:MAX_CLASSES].tolist())


def kept_rates(codes: IntArray, names: Sequence[Any], rate: ClassRate) -> dict[str, float]:
    """The rates of the commonest categories, by name; without that of missing values."""
    commonest = np.argsort(-np.bincount(codes), kind="stable")[:MAX_RATES].tolist()
    return {names[i]: float(rate.rates[i]) for i in commonest if not pd.isna(names[i])}


def cross_fitted(codes: IntArray, hits: BoolArray, mean: float, strength: float) -> FloatArray:
    """The rate of hits in the category of each row, by the rows of other folds."""
    counts, sums = of_other_folds(codes, None, hits)
    return shrunk(sums, counts, mean, strength)


def shrunk(
    hits: npt.NDArray[Any], rows: npt.NDArray[Any], mean: float, strength: float
) -> FloatArray:
    """Rates of hits among rows, shrunk by adding `strength` rows of the mean rate."""
    return np.asarray((hits + strength * mean) / (rows + strength))


def of_other_folds(groups: IntArray, *weights: npt.NDArray[np.generic] | None) -> list[FloatArray]:
    """For each row, sums over the rows of its group that are not in its own fold.

    Groups are numbered from 0. Each of the weights is summed; None counts rows.
    """
    fold = np.random.default_rng(0).permutation(len(groups)) % NUM_FOLDS
    cell = groups * NUM_FOLDS + fold
    return [
        np.bincount(groups, weights=each)[groups] - np.bincount(cell, weights=each)[cell]
        for each in weights
    ]


def numbered_categories(cells: pd.Series) -> tuple[IntArray, pd.Index]:
    """The number of each row's category, and the categories by number; missing is one of them."""
    return pd.factorize(pd.Series(category_names(cells), dtype=object), use_na_sentinel=False)


def _strength(sums: FloatArray, counts: IntArray) -> float | None:
    """Variance within categories over that between them; None if they differ only by chance."""
    rows, size = int(counts.sum()), len(counts)
    if rows == size:
        return None
    means, mean = sums / counts, sums.sum() / rows
    within = float((sums * (1 - means)).sum()) / (rows - size)
    between = float((counts * (means - mean) ** 2).sum()) / (size - 1)
    if within == 0:
        return LEAST_STRENGTH if between > 0 else None
    if f_distribution.sf(between / within, size - 1, rows - size) > SIGNIFICANCE:
        return None
    usual = (rows - float((counts.astype(np.float64) ** 2).sum()) / rows) / (size - 1)
    return max(LEAST_STRENGTH, within * usual / (between - within))
