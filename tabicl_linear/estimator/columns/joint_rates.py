"""Rates of classes in the categories of two columns together.

A role and a department, or the codes of a sender and a receiver, may say together what neither says
alone. Trees ask about one column at a time, so they need many questions. Two columns of many
categories get joint rates if these predict training rows better than the rates of the better column
do, all cross-fitted.
"""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import norm

from tabicl_linear.estimator.arrays import FloatArray, IntArray
from tabicl_linear.estimator.columns.categorical import CategoryColumn
from tabicl_linear.estimator.columns.category_names import canonical
from tabicl_linear.estimator.columns.information import judged_rows, telling
from tabicl_linear.estimator.columns.target_rates import (
    MIN_CATEGORIES,
    class_rates,
    cross_fitted,
    kept_rates,
    numbered_categories,
)

MOST_COLUMNS = 12
"""Maximum number of columns that are paired, the first ones, which make 66 pairs."""
MOST_RATES = 20
"""Maximum number of columns of joint rates: those of the pairs that gain most."""
FEWEST_ROWS, MOST_ROWS = 1_000, 10_000
"""Bounds of the number of rows that choose pairs. In fewer, hardly any two rows have both
categories in common."""


@dataclass(frozen=True)
class JointRateColumn:
    """Encodes the categories of a row in two columns by the rate of one class in both.

    Attributes:
        label: Index of the class.
        rates: Rate for each pair of categories, written as a JSON list; null is a missing one.
        mean: Rate in all training rows, which pairs that did not occur get.
        strength: How many rows of the mean rate are added to those of every pair.
    """

    name: Hashable
    position: int
    other_name: Hashable
    other_position: int
    label: int
    rates: dict[str, float]
    mean: float
    strength: float

    def encode(self, cells: pd.Series, others: pd.Series) -> FloatArray:
        """Rates in float64; the mean rate where the two categories never occurred together."""
        codes, names = _joined(_Categories.of(cells), _Categories.of(others))
        rates = np.array([self.rates.get(name, self.mean) for name in names], dtype=np.float64)
        return rates[codes]

    def cross_fitted(self, labels: IntArray, cells: pd.Series, others: pd.Series) -> FloatArray:
        """Rates of the training rows, each without the rows of its own fold."""
        codes, _ = _joined(_Categories.of(cells), _Categories.of(others))
        return cross_fitted(codes, labels == self.label, self.mean, self.strength)


@dataclass(frozen=True)
class _Categories:
    """The categories of a column: their canonical names, and the number of each row's category."""

    names: list[str | None]
    codes: IntArray

    @classmethod
    def of(cls, cells: pd.Series) -> "_Categories":
        codes, distinct = numbered_categories(cells)
        spelt = [None if pd.isna(name) else canonical(name) for name in distinct]
        # Two spellings of a name are one category.
        places, names = pd.factorize(np.array(spelt, dtype=object), use_na_sentinel=False)
        return cls([None if pd.isna(name) else name for name in names], places[codes])


def fit_joint_rates(
    frame: pd.DataFrame, columns: Sequence[object], labels: IntArray
) -> tuple[JointRateColumn, ...]:
    """Joint rates of the pairs of columns that predict better together; best pairs first."""
    if len(frame) < FEWEST_ROWS:
        return ()
    categories = dict[int, _Categories]()
    for column in columns:
        if isinstance(column, CategoryColumn) and len(categories) < MOST_COLUMNS:
            candidate = _Categories.of(frame.iloc[:, column.position])
            if len(candidate.names) > MIN_CATEGORIES:
                categories[column.position] = candidate
    records = list[JointRateColumn]()
    for first, second in _better_pairs(categories, labels):
        codes, names = _joined(categories[first], categories[second])
        pair = frame.columns[first], first, frame.columns[second], second
        for rate in class_rates(codes, labels):
            rates = kept_rates(codes, names, rate)
            records.append(JointRateColumn(*pair, rate.label, rates, rate.mean, rate.strength))
    return tuple(records[:MOST_RATES])


def _better_pairs(categories: dict[int, _Categories], labels: IntArray) -> list[tuple[int, int]]:
    """Positions of pairs of columns that predict labels better together; largest gain first."""
    rows = judged_rows(len(labels), MOST_ROWS)
    labels = labels[rows]
    places = dict[bytes, int]()  # the first of columns that say the same (a code and its title)
    codes = {place: pd.factorize(column.codes[rows])[0] for place, column in categories.items()}
    for place, each in codes.items():
        places.setdefault(each.tobytes(), place)
    alone = {place: _errors(codes[place], labels) for place in places.values()}
    pairs, gains, p_values = list[tuple[int, int]](), list[float](), list[float]()
    for first, second in combinations(places.values(), 2):
        joint, _ = pd.factorize(codes[first] * len(categories[second].names) + codes[second])
        if joint.max() < MIN_CATEGORIES:
            continue
        gain = min(alone[first], alone[second], key=np.mean) - _errors(joint, labels)
        error = gain.std() / np.sqrt(len(gain))
        pairs.append((first, second))
        gains.append(float(gain.mean()))
        p_values.append(float(norm.sf(gain.mean() / error)) if error else 1.0)
    return telling(pairs, gains, p_values)


def _errors(codes: IntArray, labels: IntArray) -> FloatArray:
    """Squared error of each row, summed over classes, by cross-fitted rates or else by the mean."""
    errors = np.zeros(len(labels))
    rates = {rate.label: rate for rate in class_rates(codes, labels)}
    for label in np.unique(labels):
        hits = labels == label
        rate = rates.get(int(label))
        predictions = hits.mean()
        if rate is not None:
            predictions = cross_fitted(codes, hits, rate.mean, rate.strength)
        errors += (hits - predictions) ** 2
    return errors


def _joined(first: _Categories, second: _Categories) -> tuple[IntArray, list[str]]:
    """The number of each row's pair of categories, and the names of the pairs by number."""
    codes, distinct = pd.factorize(first.codes * len(second.names) + second.codes)
    pairs = np.stack(np.divmod(distinct, max(1, len(second.names))), axis=1).tolist()
    names = [
        json.dumps([first.names[one], second.names[other]], ensure_ascii=False)
        for one, other in pairs
    ]
    return codes, names
