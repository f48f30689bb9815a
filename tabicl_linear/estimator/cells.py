"""What the cells of a table column hold: numbers, dates, booleans or categories.

A column is read by what it *holds*, not by the dtype it came with: text that is all numbers counts
as numbers, and pandas' `str`, `string` and `object` columns are treated alike.
"""

import math
import warnings
from collections.abc import Hashable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError

MISSING_TEXT = ("", "nan")
"""Text that counts as missing: 'nan' is what numpy writes for NaN in an array of strings."""

Kind = Literal["numeric", "datetime", "boolean", "categorical"]

_BOOLEANS = {"0": "False", "1": "True", "false": "False", "true": "True"}


def find_kind(cells: pd.Series, name: Hashable) -> Kind:
    """What a training column holds.

    Raises:
        DataError: The column holds durations, periods, intervals or complex numbers; the message
            says what to give instead.
    """
    dtype = cells.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "categorical"
    if dtypes.is_bool_dtype(dtype):
        return "boolean"
    if dtypes.is_datetime64_any_dtype(dtype):
        return "datetime"
    if isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype) or dtypes.is_complex_dtype(dtype):
        raise DataError(f"Column {name!r} holds {dtype} values; turn them into numbers or text.")
    if dtypes.is_timedelta64_dtype(dtype):
        raise DataError(f"Column {name!r} holds durations; give table[{name!r}].dt.total_seconds()")
    if dtypes.is_numeric_dtype(dtype):
        return "numeric"
    return _kind_of_objects(cells, name)


def _kind_of_objects(cells: pd.Series, name: Hashable) -> Kind:
    present = cells[~missing(cells)]
    if present.empty:
        return "categorical"
    content = dtypes.infer_dtype(present, skipna=True)
    if content == "boolean":
        return "boolean"
    if content in ("datetime", "datetime64", "date"):
        return "datetime"
    if content in ("timedelta", "timedelta64"):
        raise DataError(f"Column {name!r} holds durations; give them as a number of seconds.")
    is_number = ~np.isnan(_parsed(present, name))
    if is_number.all():
        return "numeric"
    if is_number.mean() > 0.5 or (content.startswith("mixed") and is_number.any()):
        text = present[~is_number].iloc[0]
        warnings.warn(
            f"Column {name!r} mixes numbers with other values such as {text!r} "
            f"({int((~is_number).sum())} of {len(present)} training rows): it is read as "
            "categories. Replace those values by NaN if the column is numeric.",
            UserWarning,
            stacklevel=2,
        )
    return "categorical"


def missing(cells: pd.Series) -> npt.NDArray[np.bool_]:
    """Which cells count as missing: None, NaN, NA, NaT, +-infinity and the texts '' and 'nan'."""
    if dtypes.is_numeric_dtype(cells.dtype):
        return ~np.isfinite(cells.to_numpy(dtype=np.float64, na_value=np.nan))
    absent = cells.isna().to_numpy(dtype=bool)
    if dtypes.is_object_dtype(cells.dtype):  # cells may be unhashable: no `isin`
        return absent | np.array([isinstance(v, str) and v in MISSING_TEXT for v in cells], bool)
    if dtypes.is_datetime64_any_dtype(cells.dtype):
        return absent
    return absent | cells.isin(MISSING_TEXT).to_numpy(dtype=bool)


def numbers(
    cells: pd.Series, name: Hashable, *, kind: Literal["numeric", "datetime"]
) -> npt.NDArray[np.float64]:
    """The cells as float64, dates as days since 1970 (UTC); NaN where missing or infinite.

    Raises:
        DataError: A cell is not a number, or not a date; the message names the column and the first
            such value.
    """
    is_date = dtypes.is_datetime64_any_dtype(cells.dtype) or (
        dtypes.is_object_dtype(cells.dtype)
        and dtypes.infer_dtype(cells, skipna=True) in ("datetime", "datetime64", "date")
    )
    absent = missing(cells)
    if not absent.all() and is_date != (kind == "datetime"):
        held, holds = ("dates", "no dates") if kind == "datetime" else ("numbers", "dates")
        raise DataError(
            f"Column {name!r} held {held} in the training table and holds {holds} here "
            f"({cells[~absent].iloc[0]}); convert it."
        )
    if is_date:
        return _days(cells, name)
    if dtypes.is_numeric_dtype(cells.dtype):
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    else:
        values = _parsed(cells, name)
        wrong = np.isnan(values) & ~absent
        if wrong.any():
            raise DataError(
                f"Column {name!r} held numbers in the training table and holds "
                f"{cells[wrong].iloc[0]!r} here; give numbers or missing values."
            )
    values[~np.isfinite(values)] = np.nan
    return values


def _parsed(cells: pd.Series, name: Hashable) -> npt.NDArray[np.float64]:
    """The numbers that texts and objects stand for; NaN where they are not numbers."""
    parsed = pd.to_numeric(cells.astype(object), errors="coerce")
    if dtypes.is_complex_dtype(parsed.dtype):
        raise DataError(f"Column {name!r} holds complex numbers; give real numbers.")
    return parsed.to_numpy(dtype=np.float64, copy=True)


def _days(cells: pd.Series, name: Hashable) -> npt.NDArray[np.float64]:
    try:
        stamps = pd.to_datetime(cells, utc=True).dt.tz_localize(None).dt.as_unit("us")
    except (ValueError, OverflowError) as error:
        raise DataError(f"Column {name!r} holds dates that pandas cannot read: {error}.") from error
    return (stamps.to_numpy() - np.datetime64(0, "us")) / np.timedelta64(1, "D")


def category_names(cells: pd.Series, *, boolean: bool = False) -> npt.NDArray[Any]:
    """The cells as text, so that 1, 1.0 and '1' are one category; None where missing."""
    absent = missing(cells)
    if dtypes.is_object_dtype(cells.dtype):  # cells may be unhashable: one by one
        names = np.array([text_of(value) for value in cells], dtype=object)
    else:
        codes, distinct = pd.factorize(cells)
        # Code -1 (missing) selects the appended name.
        names = np.array([*(text_of(value) for value in distinct), None], dtype=object)[codes]
    if boolean:
        names = np.array([_BOOLEANS.get(str(v).lower(), v) for v in names], dtype=object)
    names[absent] = None
    return names


def text_of(value: object) -> str:
    """Text that is the same for 1, 1.0 and '1'."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def number_of(text: str) -> float | None:
    """The number that a text stands for, or None if it is not a number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
