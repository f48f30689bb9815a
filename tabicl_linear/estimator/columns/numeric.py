"""Columns of numbers and dates: z-scores, and where values are missing.

A column may arrive with another dtype at prediction time as long as its values still make sense;
otherwise the error names it. This holds for all columns.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from tabicl_linear.estimator.arrays import BoolArray, FloatArray, IntArray
from tabicl_linear.estimator.columns.cells import numbers, stamps
from tabicl_linear.estimator.columns.dropped import CONSTANT, EMPTY, DroppedColumn
from tabicl_linear.estimator.columns.reading import Reading
from tabicl_linear.estimator.columns.scales import Scale, in_logarithms, middle_and_spread
from tabicl_linear.estimator.columns.time_zones import have_zones

CLIP = 100.0
"""Largest absolute z-score."""
MIN_MISSING = 0.05
"""From this share of missing values on, another column always says where they are."""
SIGNIFICANCE = 0.01
"""Chance that fewer missing values get such a column although the classes do not depend on them."""

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


def date_part(stamps: pd.Series, part: Part) -> FloatArray:
    """A part of time stamps in UTC as float64; NaN where missing.

    The parts are days since 1970, year, month (1 to 12), weekday (0 for Monday), and hour of the
    day with its minutes as a fraction.
    """
    return _READERS[part](stamps).to_numpy(dtype=np.float64, na_value=np.nan)


@dataclass(frozen=True)
class NumericColumn:
    """Standardises numbers, or a part of dates, with mean and deviation of the training rows.

    Attributes:
        low, high, mean, std: The `Scale` of the finite training values.
        text_format: How text is read; see `Reading`.
        part: Part of the dates; None for numbers.
        logarithms: Middle and spread of the training values, if distances from the middle are read
            in logarithms (`in_logarithms`); the scale is then that of the logarithms.
        has_zone: Whether the training dates had a time zone; None for numbers, if dates differed,
            and in files of earlier versions.
    """

    name: Hashable
    position: int
    low: float
    high: float
    mean: float
    std: float
    text_format: str
    part: Part | None
    logarithms: tuple[float, float] | None = None
    has_zone: bool | None = None

    @property
    def kind(self) -> Literal["numeric", "datetime"]:
        """What the cells hold."""
        return "numeric" if self.part is None else "datetime"

    def encode(self, cells: pd.Series) -> FloatArray:
        """Z-scores in float64, clipped at +-100; NaN where a value is missing or infinite."""
        values = values_of(cells, self.text_format, self.part)
        if self.logarithms is not None:
            values = in_logarithms(values, *self.logarithms)
        # A huge query value may overflow here: infinity is then clipped like any other outlier.
        with np.errstate(over="ignore"):
            scores = Scale(self.low, self.high, self.mean, self.std).scores(values)
        return np.clip(scores, -CLIP, CLIP)


@dataclass(frozen=True)
class MissingColumn:
    """Encodes where values of a column of numbers or dates are missing."""

    name: Hashable
    position: int
    kind: Literal["numeric", "datetime"]
    text_format: str

    def encode(self, cells: pd.Series) -> FloatArray:
        """1 where a value is missing or infinite, else 0."""
        values = values_of(cells, self.text_format, None if self.kind == "numeric" else "days")
        return np.isnan(values).astype(np.float64)


def values_of(cells: pd.Series, text_format: str, part: Part | None) -> FloatArray:
    """The numbers of a column, or a part of its dates; NaN where missing."""
    if part is None:
        return numbers(cells, text_format)
    return date_part(stamps(cells, text_format), part)


def fit_numeric(
    cells: pd.Series, position: int, reading: Reading, labels: IntArray | None
) -> tuple[NumericColumn | MissingColumn | DroppedColumn, ...]:
    """Learn a training column, at `position` in the table, as one or more columns of numbers.

    Class indices of the rows, if given, decide whether it matters which values are missing.
    """
    assert reading.kind in ("numeric", "datetime")
    place = cells.name, position
    has_zone = None
    if reading.kind == "numeric":
        values: dict[Part | None, Any] = {None: numbers(cells, reading.text_format)}
    else:
        dates = stamps(cells, reading.text_format)
        values = {part: date_part(dates, part) for part in PARTS}
        zones = have_zones(cells[dates.notna()])
        has_zone = True in zones if len(zones) == 1 else None
    absent = np.isnan(next(iter(values.values())))  # all parts of a date are missing together
    if absent.all():
        return (DroppedColumn(*place, EMPTY),)
    columns = list[NumericColumn | MissingColumn]()
    for part, part_values in values.items():
        present = part_values[~absent]
        if present.max() / 2 - present.min() / 2 > 0:
            scale, logarithms = _scale(present)
            text_format = reading.text_format
            columns.append(NumericColumn(*place, *scale, text_format, part, logarithms, has_zone))
    if absent.any() and (not columns or _absence_tells(absent, labels)):
        columns.append(MissingColumn(*place, reading.kind, reading.text_format))
    return tuple(columns) or (DroppedColumn(*place, CONSTANT),)


def _scale(values: FloatArray) -> tuple[Scale, tuple[float, float] | None]:
    """The scale of values and None; or that of their logarithms, with middle and spread."""
    scale = Scale.of(values)
    if scale.tells_apart(values):
        return scale, None
    logarithms = middle_and_spread(values)
    return Scale.of(in_logarithms(values, *logarithms)), logarithms


def _absence_tells(absent: BoolArray, labels: IntArray | None) -> bool:
    """Whether a column of its own should say which values are missing.

    It should if they are many, or if their share differs between classes by a chi-squared test.
    """
    if absent.mean() >= MIN_MISSING:
        return True
    if labels is None:
        return False
    counts = np.stack(
        [np.bincount(labels[absent == side], minlength=labels.max() + 1) for side in (True, False)]
    )
    return bool(chi2_contingency(counts[:, counts.any(axis=0)]).pvalue < SIGNIFICANCE)
