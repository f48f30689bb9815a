"""Numeric codes of single table columns, learnt on the training rows.

A column may arrive with another dtype at prediction time as long as its values still make sense;
otherwise the error names it.
"""

import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.cells import (
    Kind,
    category_names,
    find_kind,
    number_of,
    numbers,
    text_of,
)

CLIP = 100.0
MAX_CATEGORIES = 256
UNSEEN = -1


@dataclass(frozen=True)
class NumericColumn:
    """Standardises numbers (or dates, as days) with the mean and deviation of the training rows.

    Attributes:
        name: Column label, or position where the table had no labels.
        position: Index of the column in the training table.
        kind: What the column held.
        low: Smallest finite training value.
        high: Largest finite training value.
        mean: Mean of the training values after mapping `low..high` to 0..1.
        std: Their standard deviation (population).
    """

    name: Hashable
    position: int
    kind: Literal["numeric", "datetime"]
    low: float
    high: float
    mean: float
    std: float

    def encode(self, cells: pd.Series) -> npt.NDArray[np.float64]:
        """Z-scores in float64, clipped at +-100; NaN where a value is missing or infinite."""
        values = numbers(cells, self.name, kind=self.kind)
        # A huge query value may overflow here: infinity is then clipped like any other outlier.
        with np.errstate(over="ignore"):
            scores = (_unit(values, self.low, self.high) - self.mean) / self.std
        return np.clip(scores, -CLIP, CLIP)


@dataclass(frozen=True)
class CategoryColumn:
    """Numbers the categories of the training rows.

    Attributes:
        name: Column label, or position where the table had no labels.
        position: Index of the column in the training table.
        kind: What the column held.
        codes: Category (as text) to code, 0, 1, ...
        other: Code of every other category: -1, or the last code where rare ones were joined.
    """

    name: Hashable
    position: int
    kind: Literal["boolean", "categorical"]
    codes: dict[str, int]
    other: int

    def encode(self, cells: pd.Series) -> npt.NDArray[np.float64]:
        """Ordinal codes; NaN where a value is missing, `other` where its category is unknown."""
        names = category_names(cells, boolean=self.kind == "boolean")
        codes = pd.Series(names, dtype=object).map(self.codes).to_numpy(np.float64, copy=True)
        absent = pd.isna(names)
        unknown = np.isnan(codes) & ~absent
        self._refuse_other_dtype(cells, names, unknown)
        codes[unknown] = self.other
        return codes

    def _refuse_other_dtype(
        self, cells: pd.Series, names: npt.NDArray[Any], unknown: npt.NDArray[np.bool_]
    ) -> None:
        if not unknown.any():
            return
        first = names[unknown][0]
        if self.kind == "boolean":
            raise DataError(
                f"Column {self.name!r} held booleans in the training table and holds {first!r} "
                "here; give True, False or a missing value."
            )
        if any(number_of(name) is not None for name in self.codes):
            return
        if dtypes.is_numeric_dtype(cells.dtype) and not dtypes.is_bool_dtype(cells.dtype):
            holds = "numbers"
        elif dtypes.is_datetime64_any_dtype(cells.dtype):
            holds = "dates"
        else:
            return
        raise DataError(
            f"Column {self.name!r} held categories such as {next(iter(self.codes))!r} in the "
            f"training table and holds {holds} ({first}) here; give the categories."
        )


@dataclass(frozen=True)
class DroppedColumn:
    """A column without information: all training rows have the same value, or none.

    Attributes:
        name: Column label, or position where the table had no labels.
        position: Index of the column in the training table.
        reason: Why it is not used.
    """

    name: Hashable
    position: int
    reason: str


Column = NumericColumn | CategoryColumn | DroppedColumn


def fit_column(
    cells: pd.Series, name: Hashable, position: int, *, declared_categorical: bool = False
) -> Column:
    """Learn how to encode one training column.

    Args:
        cells: The training rows of the column.
        name: Label for messages and records.
        position: Index of the column in the table.
        declared_categorical: Read it as categories whatever it holds.

    Raises:
        DataError: The column holds something that is neither a number, a date nor a category.
    """
    kind: Kind = "categorical" if declared_categorical else find_kind(cells, name)
    if kind in ("numeric", "datetime"):
        return _fit_numeric(cells, name, position, kind=kind)
    return _fit_categories(cells, name, position, kind=kind)


def _fit_numeric(cells: pd.Series, name: Hashable, position: int, *, kind: Any) -> Column:
    values = numbers(cells, name, kind=kind)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return DroppedColumn(name, position, "no training row has a value")
    low, high = float(values.min()), float(values.max())
    if high / 2 - low / 2 == 0:
        return DroppedColumn(name, position, "all training rows have the same value")
    unit = _unit(values, low, high)
    return NumericColumn(name, position, kind, low, high, float(unit.mean()), float(unit.std()))


def _fit_categories(cells: pd.Series, name: Hashable, position: int, *, kind: Any) -> Column:
    names = category_names(cells, boolean=kind == "boolean")
    counts = pd.Series(names, dtype=object).value_counts()
    if counts.empty:
        return DroppedColumn(name, position, "no training row has a value")
    if len(counts) == 1:
        return DroppedColumn(name, position, "all training rows have the same value")
    if isinstance(cells.dtype, pd.CategoricalDtype):
        ordered = [text_of(value) for value in cells.cat.categories]
    else:
        ordered = sorted(counts.index, key=_sort_key)
    ordered = [category for category in ordered if category in counts.index]
    other = UNSEEN
    if len(ordered) > MAX_CATEGORIES:
        warnings.warn(
            f"Column {name!r} has {len(ordered)} categories in the training rows; the "
            f"{MAX_CATEGORIES - 1} most frequent are kept and the others share one code. Drop "
            "the column if it is an identifier, or turn dates and text into numbers.",
            UserWarning,
            stacklevel=2,
        )
        other = MAX_CATEGORIES - 1
        frequent = sorted(ordered, key=lambda category: -counts[category])[:other]
        kept = set(frequent)
        ordered = [category for category in ordered if category in kept]
    codes = {category: code for code, category in enumerate(ordered)}
    return CategoryColumn(name, position, kind, codes, other)


def _sort_key(category: str) -> tuple[bool, float, str]:
    number = number_of(category)
    return (number is None, 0.0 if number is None else number, category)


def _unit(values: npt.NDArray[np.float64], low: float, high: float) -> npt.NDArray[np.float64]:
    # Halved before subtracting: the range of a float64 column may itself overflow.
    return (values / 2 - low / 2) / (high / 2 - low / 2)
