"""Numeric codes of single table columns, learnt on the training rows.

Each record has the `name` of its column (the label, or the position where the table had no labels)
and its `position` in the training table. A column may arrive with another dtype at prediction time
as long as its values still make sense; otherwise the error names it.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.category_names import (
    category_names,
    date_of,
    looked_up,
    number_of,
)
from tabicl_linear.estimator.columns.counted_rates import CountedRateColumn
from tabicl_linear.estimator.columns.reading import numbers, stamps
from tabicl_linear.estimator.columns.target_rates import RateColumn

CLIP = 100.0
UNSEEN = -1

Part: TypeAlias = Literal["days", "year", "month", "weekday", "hour"]

_EPOCH = np.datetime64(0, "us")
_DAY = np.timedelta64(1, "D")
_READERS: dict[Part, Callable[[pd.Series], pd.Series]] = {
    "days": lambda stamps: (stamps - _EPOCH) / _DAY,
    "year": lambda stamps: stamps.dt.year,
    "month": lambda stamps: stamps.dt.month,
    "weekday": lambda stamps: stamps.dt.day_of_week,
    "hour": lambda stamps: stamps.dt.hour + stamps.dt.minute / 60,
}
PARTS = tuple(_READERS)


def date_part(stamps: pd.Series, part: Part) -> npt.NDArray[np.float64]:
    """A part of time stamps in UTC as float64; NaN where missing.

    It is days since 1970, year, month (1 to 12), weekday (0 for Monday), or hour of the day with
    its minutes as a fraction.
    """
    return _READERS[part](stamps).to_numpy(dtype=np.float64, na_value=np.nan)


@dataclass(frozen=True)
class NumericColumn:
    """Standardises numbers, or a part of dates, with mean and deviation of the training rows.

    Attributes:
        low: Smallest finite training value.
        high: Largest finite training value.
        mean: Mean of the training values after mapping `low..high` to 0..1.
        std: Their standard deviation (population).
        text_format: How text is read, see `Reading`.
        part: Part of the dates; None for numbers.
    """

    name: Hashable
    position: int
    kind: Literal["numeric", "datetime"]
    low: float
    high: float
    mean: float
    std: float
    text_format: str
    part: Part | None

    def encode(self, cells: pd.Series) -> npt.NDArray[np.float64]:
        """Z-scores in float64, clipped at +-100; NaN where a value is missing or infinite."""
        if self.part is None:
            values = numbers(cells, self.text_format)
        else:
            values = date_part(stamps(cells, self.text_format), self.part)
        # A huge query value may overflow here: infinity is then clipped like any other outlier.
        with np.errstate(over="ignore"):
            scores = (to_unit(values, self.low, self.high) - self.mean) / self.std
        return np.clip(scores, -CLIP, CLIP)


@dataclass(frozen=True)
class MissingColumn:
    """Says which values of a column of numbers or dates are missing."""

    name: Hashable
    position: int
    kind: Literal["numeric", "datetime"]
    text_format: str

    def encode(self, cells: pd.Series) -> npt.NDArray[np.float64]:
        """1 where a value is missing or infinite, else 0."""
        if self.kind == "numeric":
            absent = np.isnan(numbers(cells, self.text_format))
        else:
            absent = stamps(cells, self.text_format).isna().to_numpy()
        return absent.astype(np.float64)


@dataclass(frozen=True)
class CategoryColumn:
    """Numbers the categories of the training rows.

    Attributes:
        codes: Category (as text) to code, 0, 1, ...
        other: Code of every other category: -1, or one of its own where rare ones were joined.
        missing: Code where a value is missing; None if none was in the training rows.
    """

    name: Hashable
    position: int
    kind: Literal["boolean", "categorical"]
    codes: dict[str, int]
    other: int
    missing: int | None

    def encode(self, cells: pd.Series) -> npt.NDArray[np.float64]:
        """Ordinal codes; `other` where the category is unknown, NaN if missing was never seen."""
        names = category_names(cells, boolean=self.kind == "boolean")
        codes = looked_up(names, self.codes)
        absent = pd.isna(names)
        unknown = np.isnan(codes) & ~absent
        self._refuse_other_dtype(cells, names, unknown)
        codes[unknown] = self.other
        if self.missing is not None:
            codes[absent] = self.missing
        return codes

    def _refuse_other_dtype(
        self, cells: pd.Series, names: npt.NDArray[Any], unknown: npt.NDArray[np.bool_]
    ) -> None:
        if not unknown.any():
            return
        first = names[unknown][0]
        if self.kind == "boolean":
            # The other truth value is merely unseen where training rows have only one.
            non_booleans = [name for name in names[unknown] if name not in ("False", "True")]
            if non_booleans:
                raise DataError(
                    f"Column {self.name!r} held booleans in the training table and holds "
                    f"{non_booleans[0]!r} here; give True, False or a missing value."
                )
            return
        if any(number_of(name) is not None for name in self.codes):
            return
        if dtypes.is_numeric_dtype(cells.dtype) and not dtypes.is_bool_dtype(cells.dtype):
            holds = "numbers"
        elif dtypes.is_datetime64_any_dtype(cells.dtype):
            if any(date_of(name) is not None for name in self.codes):
                return
            holds = "dates"
        else:
            return
        raise DataError(
            f"Column {self.name!r} held categories such as {next(iter(self.codes))!r} in the "
            f"training table and holds {holds} ({first}) here; give the categories."
        )


@dataclass(frozen=True)
class DroppedColumn:
    """A column without information: all training rows have the same value, or none."""

    name: Hashable
    position: int
    reason: str


UsedColumn = NumericColumn | MissingColumn | CategoryColumn | RateColumn | CountedRateColumn
Column = UsedColumn | DroppedColumn


def to_unit(values: npt.NDArray[np.float64], low: float, high: float) -> npt.NDArray[np.float64]:
    """Values mapped to 0..1 from `low..high`."""
    # Halved before subtracting: the range of a float64 column may itself overflow.
    return (values / 2 - low / 2) / (high / 2 - low / 2)
