"""Cells of a column: which are missing, and the numbers or time stamps of the others."""

from collections.abc import Hashable
from datetime import date, time
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import BoolArray, FloatArray
from tabicl_linear.estimator.columns.text_formats import (
    ISO,
    NO_UNIT,
    TIMES,
    are_instances,
    are_placeholders,
    read_dates,
    unit_of,
    written_number,
)
from tabicl_linear.estimator.notices import brief

MISSING_TEXT = ("", "nan")
"""Text that counts as missing: 'nan' is what numpy writes for NaN in an array of strings."""
TRUTHS = {"0": "False", "1": "True", "false": "False", "true": "True"}
"""Names of truth values, by the texts and numbers (in small letters) that may stand for them where
other cells are booleans, as in a table in pieces."""
DATE_KINDS = ("datetime", "datetime64", "date")
"""What pandas' `infer_dtype` calls objects that are dates."""
_SHORT_FLOATS: dict[str, Any] = {
    **dict.fromkeys(("float16", "halffloat[pyarrow]"), np.float16),
    **dict.fromkeys(("float32", "float[pyarrow]"), np.float32),
}
"""Short float types, by the names (in small letters) that NumPy, pandas and Arrow give them."""


def unlike_training(name: Hashable, held: str, holds: str, remedy: str) -> DataError:
    """The error for a column whose cells are of another kind than in training."""
    return DataError(
        f"Column {brief(name)} held {held} in the training table and holds {holds}; {remedy}."
    )


def are_missing(cells: pd.Series) -> BoolArray:
    """Which cells count as missing: None, NaN, NA, NaT, +-infinity and the texts '' and 'nan'."""
    if dtypes.is_numeric_dtype(cells.dtype):
        return ~np.isfinite(cells.to_numpy(dtype=np.float64, na_value=np.nan))
    absent = cells.isna().to_numpy(dtype=bool)
    if dtypes.is_object_dtype(cells.dtype):  # without `isin`, since cells may be unhashable
        return absent | np.array([isinstance(v, str) and v in MISSING_TEXT for v in cells], bool)
    if dtypes.is_datetime64_any_dtype(cells.dtype):
        return absent
    return absent | cells.isin(MISSING_TEXT).to_numpy(dtype=bool)


def numbers(cells: pd.Series, text_format: str) -> FloatArray:
    """The cells of a column as float64; NaN where missing or infinite. See `Reading` for formats.

    Raises:
        DataError: A cell is not a number, or has another unit; the message names the column and the
            first such value.
    """
    if dtypes.is_complex_dtype(cells.dtype):
        raise unusable(cells, "complex numbers", "give real numbers")
    absent = are_missing(cells)
    if not absent.all() and _holds_dates(cells):
        other = f"dates here ({cells[~absent].iloc[0]})"
        raise unlike_training(cells.name, "numbers", other, "convert it")
    if dtypes.is_numeric_dtype(cells.dtype):
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        values = decimals(values, cells.dtype)
    else:
        values = _numbers_of_text(cells, absent, text_format)
    values[~np.isfinite(values)] = np.nan
    return values


def _numbers_of_text(cells: pd.Series, absent: BoolArray, text_format: str) -> FloatArray:
    """The numbers that text and objects stand for; see `numbers`. `absent`: missing cells."""
    decimal, unit = text_format[:1], text_format[1:]
    values = parsed_numbers(cells, decimal)
    wrong = np.isnan(values) & ~absent
    if wrong.any():
        wrong &= ~are_placeholders(cells)
    if wrong.any():
        other = f"{brief(cells[wrong].iloc[0])} here"
        raise unlike_training(cells.name, "numbers", other, "give numbers or missing values")
    if unit:
        is_number = ~np.isnan(values)
        if unit != "%":  # numbers without a unit fit, and pandas reads these by itself
            is_number &= np.isnan(parsed_numbers(cells, ""))
        _refuse_other_unit(cells[is_number], unit)
    return values


def _refuse_other_unit(cells: pd.Series, unit: str) -> None:
    """Raise for text in another unit; text without a unit is accepted, except for percent."""
    fitting = {unit} if unit == "%" else {unit, ""}
    of_training = "without a unit" if unit == NO_UNIT else f"in {unit}"
    for value in cells:
        if isinstance(value, str) and unit_of(value) not in fitting:
            other = f"{brief(value)} here"
            raise unlike_training(cells.name, f"numbers {of_training}", other, "convert it")


def stamps(cells: pd.Series, text_format: str) -> pd.Series:
    """The dates of a column as time stamps without zone, in UTC; NaT where missing.

    Raises:
        DataError: A cell is not a date; the message names the column and the first such value.
    """
    name = cells.name
    if isinstance(cells.dtype, pd.CategoricalDtype):
        cells = cells.astype(object)  # dates or text, as the categories are
    try:
        times = (_of_dates if _holds_dates(cells) else _of_texts)(cells, text_format)
        return times.dt.tz_localize(None).dt.as_unit("us")
    except DataError:
        raise
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"Column {brief(name)} holds dates that pandas cannot read: {error}."
        ) from error


def _of_dates(cells: pd.Series, text_format: str) -> pd.Series:
    if text_format in TIMES and cells.notna().any():
        other = f"dates here ({cells.dropna().iloc[0]})"
        raise unlike_training(cells.name, "times of day", other, "give their .dt.time")
    return pd.to_datetime(cells, utc=True)


def _of_texts(cells: pd.Series, text_format: str) -> pd.Series:
    """Time stamps of text in one format, among which there may be date or time objects."""
    objects = cells.astype(object)
    absent = are_missing(cells) | are_placeholders(objects)
    times = read_dates(objects.where(are_instances(objects, str) & ~absent), text_format)
    if text_format in TIMES:
        _refuse_zones(objects)
        texts = [value.isoformat() if isinstance(value, time) else None for value in objects]
        of_day = pd.Series(texts, index=cells.index, dtype=object)
        times = times.fillna(read_dates(of_day, TIMES[-1]))
    else:
        dates = objects.where(are_instances(objects, date) & ~absent)
        times = times.fillna(pd.to_datetime(dates, utc=True).dt.as_unit("us"))
    wrong = times.isna().to_numpy() & ~absent
    if wrong.any():
        like = "" if text_format == ISO else f", as text in the format {text_format}"
        other = f"no dates here ({brief(objects[wrong].iloc[0])})"
        raise unlike_training(cells.name, "dates", other, f"give dates{like}")
    return times


def _refuse_zones(objects: pd.Series) -> None:
    """Raise for times of day in a time zone: without a day, those of two zones have no order."""
    zoned = [v for v in objects if isinstance(v, time) and v.utcoffset() is not None]
    if zoned:
        what = f"times of day with a time zone ({zoned[0]})"
        remedy = "give them in one zone and without it, as time.replace(tzinfo=None)"
        raise unusable(objects, what, remedy)


def _holds_dates(cells: pd.Series) -> bool:
    if dtypes.is_object_dtype(cells.dtype):
        return dtypes.infer_dtype(cells, skipna=True) in DATE_KINDS
    return bool(dtypes.is_datetime64_any_dtype(cells.dtype))


def parsed_numbers(cells: pd.Series, decimal: str) -> FloatArray:
    """The numbers that texts and objects stand for; NaN where they are not numbers.

    If `decimal` is empty, only what pandas itself reads counts as a number.
    """
    numbers = pd.to_numeric(cells.astype(object), errors="coerce")
    if dtypes.is_complex_dtype(numbers.dtype):
        raise unusable(cells, "complex numbers", "give real numbers")
    values = numbers.to_numpy(dtype=np.float64, copy=True)
    if decimal:
        objects = cells.to_numpy(dtype=object)
        # "1.234" means another number where the comma is the decimal sign.
        for row in range(len(values)) if decimal == "," else np.flatnonzero(np.isnan(values)):
            if isinstance(objects[row], str):
                values[row] = written_number(objects[row], decimal)
    return values


def decimals(values: FloatArray, dtype: Any) -> FloatArray:
    """The short decimals that values of a dtype stand for, so that 5.1 in float32 becomes 5.1.

    Learners compare values with those of the context and may tell 5.0999999 from 5.1, so a float64
    table and the same table in float32 would get different predictions. Values of wide dtypes stay
    as they are. So do values that are not the rounding of a short decimal (of 3 digits in float16,
    6 in float32).
    """
    kind = _SHORT_FLOATS.get(str(dtype).lower())
    if kind is None:
        return values
    present = np.isfinite(values) & (values != 0)
    digits = np.finfo(kind).precision
    places = np.zeros_like(values)
    places[present] = digits - 1 - np.floor(np.log10(np.abs(values[present])))
    # Powers of ten are exact up to 10**22, so a division gives the float64 next to the decimal.
    up, down = 10.0 ** places.clip(0), 10.0 ** (-places).clip(0)
    rounded = np.rint(values * up / down) * down / up
    with np.errstate(over="ignore", invalid="ignore"):
        stands_for = present & (rounded.astype(kind) == values.astype(kind))
    return np.where(stands_for, rounded, values)


def unusable(cells: pd.Series, what: str, remedy: str) -> DataError:
    """The error for a column that cannot be read."""
    return DataError(f"Column {brief(cells.name)} holds {what}; {remedy}.")
