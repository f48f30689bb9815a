"""Columns that are compared with each other: whether two are equal, and by how much they differ.

Hands of cards, pieces on a board, and codes of sender and receiver say more by comparison than one
by one, and so do the days from one date to another. Trees ask about single columns, so they learn a
comparison value by value. Columns are compared if they share values or both hold dates, and if the
comparison says more about the classes than the two columns do one by one.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tabicl_linear.estimator.arrays import FloatArray, IntArray
from tabicl_linear.estimator.columns.categorical import CategoryColumn
from tabicl_linear.estimator.columns.category_names import category_names, looked_up, place_of
from tabicl_linear.estimator.columns.information import (
    bins,
    information,
    intervals,
    judged_rows,
    p_value,
    telling,
)
from tabicl_linear.estimator.columns.numeric import NumericColumn, values_of

FEWEST_VALUES, MOST_VALUES = 3, 256
"""Bounds of the number of different values of a column to compare. Trees compare two columns of two
values by themselves, in two steps."""
LEAST_SHARED = 0.5
"""Least share of values in common, of those of the column that has more."""
MOST_COMMON = 0.8
"""Maximum share of rows with the same value in a column to compare. Where nearly all cells are the
same, a comparison only says where they are not, as the columns do."""
MOST_COLUMNS = 45
"""Maximum number of columns that are compared, the first ones, which make 990 pairs."""
MOST_PAIRS = 20
"""Maximum number of comparisons that are kept: those that say most."""
MOST_ROWS = 10_000
FEWEST_ROWS = 5
"""Least mean number of rows per value. With fewer, the formulas for information and its chance do
not hold."""

Says = Literal["equality", "difference"]
Values: TypeAlias = npt.NDArray[Any]
"""Numbers in float64, or names as objects."""


@dataclass(frozen=True)
class PairColumn:
    """Compares two columns of numbers, of dates, or of categories.

    Attributes:
        says: "equality": 1 where cells are equal, else 0; "difference": the first less the second.
        text_formats: How text of both columns is read, for numbers and dates; see `Reading`.
        codes: Number of each category of both, in their common order; empty for others.
        kind: Whether columns without categories hold numbers or dates; dates differ in days.
    """

    name: Hashable
    position: int
    other_name: Hashable
    other_position: int
    says: Says
    text_formats: tuple[str, str]
    codes: dict[str, int]
    kind: Literal["numeric", "datetime"] = "numeric"

    def encode(self, cells: pd.Series, others: pd.Series) -> FloatArray:
        """The comparison in float64; NaN where a cell is missing, or a category has no code."""
        if self.codes:
            return self.compare(category_names(cells), category_names(others))
        part: Literal["days"] | None = None if self.kind == "numeric" else "days"
        first, second = self.text_formats
        return self.compare(values_of(cells, first, part), values_of(others, second, part))

    def compare(self, first: Values, second: Values) -> FloatArray:
        """The comparison of two columns that have been read already, as numbers or names."""
        if self.says == "equality":
            equal = (first == second).astype(np.float64)
            equal[pd.isna(first) | pd.isna(second)] = np.nan
            return equal
        if self.codes:
            return looked_up(first, self.codes) - looked_up(second, self.codes)
        return np.asarray(first - second, dtype=np.float64)


class _Compared(NamedTuple):
    """A column that may be compared, with its values (numbers or names) in some training rows."""

    column: NumericColumn | CategoryColumn
    values: Values
    distinct: frozenset[float] | frozenset[str]

    @property
    def holds_dates(self) -> bool:
        return self.column.kind == "datetime"

    def places(self, comparison: FloatArray | None = None) -> IntArray:
        """Bins of the column, or of its comparison with another one like it.

        The bins are intervals for dates, and for numbers if a value has few rows on average: then
        the chance of the information would not be known.
        """
        if comparison is None and isinstance(self.column, CategoryColumn):
            return bins(pd.factorize(self.values)[0])
        numbers = (self.values if comparison is None else comparison).astype(np.float64)
        places = bins(numbers)
        are_rare = (int(places.max()) + 1) * FEWEST_ROWS > len(places)
        return intervals(numbers) if self.holds_dates or are_rare else places


def fit_pairs(
    frame: pd.DataFrame, columns: Sequence[object], labels: IntArray
) -> tuple[PairColumn, ...]:
    """The comparisons that say more about the classes than the two columns do one by one."""
    rows = judged_rows(len(frame), MOST_ROWS)
    frame, labels = frame.iloc[rows], labels[rows]
    classes = bins(labels)
    compared = list(islice(_comparable(frame, columns), MOST_COLUMNS))
    alone = [information(each.places(), classes) for each in compared]
    pairs, gains, p_values = list[PairColumn](), list[float](), list[float]()
    for (one, of_one), (other, of_other) in combinations(zip(compared, alone, strict=True), 2):
        for pair in _pairs(one, other):
            places = one.places(pair.compare(one.values, other.values))
            pairs.append(pair)
            gains.append(information(places, classes) - max(of_one, 0) - max(of_other, 0))
            p_values.append(p_value(gains[-1], places, classes))
    return tuple(telling(pairs, gains, p_values)[:MOST_PAIRS])


def _comparable(frame: pd.DataFrame, columns: Sequence[object]) -> Iterator[_Compared]:
    """The columns that may be compared: of dates, of categories, and of whole numbers."""
    for column in columns:
        if isinstance(column, CategoryColumn) and column.kind == "categorical":
            cells = frame.iloc[:, column.position]
            names = category_names(cells)
            compared = _Compared(column, names, frozenset(names) - {None})
        elif isinstance(column, NumericColumn) and column.part in (None, "days"):
            cells = frame.iloc[:, column.position]
            values = values_of(cells, column.text_format, column.part)
            distinct = np.unique(values[~np.isnan(values)])
            compared = _Compared(column, values, frozenset(distinct.tolist()))
        else:
            continue
        if compared.holds_dates or _are_codes(compared):
            yield compared


def _are_codes(compared: _Compared) -> bool:
    """Whether values are categories or whole numbers, neither too few, too many nor too alike."""
    distinct = compared.distinct
    if not FEWEST_VALUES <= len(distinct) <= MOST_VALUES:
        return False
    if any(isinstance(value, float) and not value.is_integer() for value in distinct):
        return False
    commonest = pd.Series(compared.values).value_counts().iloc[0]
    return bool(commonest <= MOST_COMMON * len(compared.values))


def _pairs(one: _Compared, other: _Compared) -> Iterator[PairColumn]:
    """Equality and difference of two columns; dates only differ, and others must share values."""
    first, second = one.column, other.column
    places = first.name, first.position, second.name, second.position
    if type(first) is not type(second) or one.holds_dates != other.holds_dates:
        return
    formats, codes = ("", ""), dict[str, int]()
    if isinstance(first, NumericColumn) and isinstance(second, NumericColumn):
        formats = first.text_format, second.text_format
    if one.holds_dates:
        yield PairColumn(*places, "difference", formats, codes, "datetime")
        return
    num_shared = len(one.distinct & other.distinct)
    if num_shared < max(FEWEST_VALUES, LEAST_SHARED * max(len(one.distinct), len(other.distinct))):
        return
    if isinstance(first, CategoryColumn):
        names = {str(name) for name in one.distinct | other.distinct}
        codes = {name: code for code, name in enumerate(sorted(names, key=place_of))}
    yield PairColumn(*places, "equality", formats, codes)
    yield PairColumn(*places, "difference", formats, codes)
