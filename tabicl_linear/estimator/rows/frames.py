"""Tables and labels of other libraries, and cells that pandas itself cannot compute with."""

import math
import re
import sys
from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_scalar

from tabicl_linear.errors import DataError, one_line
from tabicl_linear.estimator.columns.category_names import place_of, text_of
from tabicl_linear.estimator.notices import brief

CONVERTED = ("polars", "pyarrow")
"""Libraries whose frames and columns are converted; polars is not imported for it."""
WITH_GAPS = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
"""Types of pandas for whole numbers with gaps; floats, which it would take, have 16 digits."""
LARGEST = int(sys.float_info.max)
"""Integers beyond this are infinite as float64."""
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters that UTF-8, and so files and Arrow, cannot hold; of JSON and file names."""


def from_other_library(values: Any) -> Any:
    """A frame or column of polars, Arrow or Dask as one of pandas; a masked array with NaN.

    Anything else is returned as it is.

    Raises:
        DataError: A lazy frame, or values that pandas cannot hold; the message names the column.
    """
    if isinstance(values, np.ma.MaskedArray):
        is_number = values.dtype.kind in "biuf"
        plain: Any = values.astype(np.float64 if is_number else object)
        return plain.filled(np.nan)  # None would stand for NumPy's own filling, "?"
    kind = type(values)
    library = kind.__module__.partition(".")[0]
    if library == "dask" and kind.__name__ in ("DataFrame", "Series"):
        return values.compute()
    if library not in CONVERTED:
        return values
    if kind.__name__ == "LazyFrame":
        raise DataError("A polars LazyFrame has no rows yet; give frame.collect().")
    what = f"A {library} {kind.__name__}"
    try:
        if library == "pyarrow":
            values.validate(full=True)
    except pa.ArrowInvalid as error:  # text that is no UTF-8
        raise _unreadable(what, error) from error
    if kind.__name__ not in ("DataFrame", "Table", "RecordBatch"):
        return _converted(values, what)
    try:
        return _as_pandas(values)
    except Exception:  # both libraries raise errors of many kinds, by the type of a column
        return computable(_with_arrow_types(values, what))


def _with_arrow_types(values: Any, what: str) -> pd.DataFrame:
    """A frame or table in Arrow's own types: they hold everything, to be read column by column."""
    if isinstance(values, pa.Table | pa.RecordBatch):
        return _converted(values, what, types_mapper=pd.ArrowDtype)
    parts = {
        part.name: _converted(part, f"Column {brief(part.name)}", use_pyarrow_extension_array=True)
        for part in values
    }
    return pd.DataFrame(parts)


def _as_pandas(values: Any) -> pd.DataFrame:
    """A frame of polars, or a table of Arrow; whole numbers with gaps keep all their digits.

    Categories that only say in which order values came are sorted as text is.
    """
    metadata: dict[str, Any] = {}
    # Columns of Arrow; in place of those of polars that are no whole numbers, None.
    if isinstance(values, pa.Table | pa.RecordBatch):
        metadata = values.schema.pandas_metadata or {}
        index = metadata.get("index_columns", [])
        by_name = zip(values.schema.names, values.columns, strict=True)
        columns = [column for name, column in by_name if name not in index]
    else:
        columns = [part.to_arrow() if part.dtype.is_integer() else None for part in values]
    with_gaps = {
        place: column
        for place, column in enumerate(columns)
        if column is not None and column.type in WITH_GAPS and column.null_count
    }
    frame: pd.DataFrame = values.to_pandas(split_blocks=bool(with_gaps))
    for place, column in with_gaps.items():
        frame.isetitem(place, column.to_pandas(types_mapper=WITH_GAPS.get).array)
    if metadata:  # pandas has written it, in the order that the user gave
        return frame
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype):
            frame.isetitem(place, _in_text_order(frame.iloc[:, place]))
    return frame


def _in_text_order(cells: pd.Series) -> pd.Series:
    """The cells; categories without an order sorted as text is, not in the order they came in."""
    dtype = cells.dtype
    if not isinstance(dtype, pd.CategoricalDtype) or dtype.ordered:
        return cells
    categories = sorted(dtype.categories, key=lambda value: place_of(text_of(value)))
    return cells.cat.set_categories(categories)


def _converted(values: Any, what: str, **options: Any) -> Any:
    try:
        return values.to_pandas(**options)
    except Exception as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> DataError:
    return DataError(
        f"{what} cannot be turned into pandas ({one_line(error)}); cast it to numbers, text or "
        "dates."
    )


def computable(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with cells that pandas can compute with.

    Integers beyond float64 become infinite and signalling NaNs of `Decimal` plain ones, which count
    as missing, lone surrogates in text become their escapes, bytes the text that they are, arrays
    and tensors of no dimension what they hold, dates of NumPy among objects those of pandas, and
    `np.longdouble` and fractions float64, as which they are read.
    Of Arrow's types all but numbers become those of pandas and Python.

    Raises:
        DataError: Two columns of one name, one without a name, names of several types, or a column
            that pandas cannot hold.
    """
    _check_names(frame.columns)
    result = frame
    for place, (name, cells) in enumerate(frame.items()):
        if isinstance(cells.dtype, pd.ArrowDtype) and not _is_number(cells.dtype.pyarrow_dtype):
            replacement = _from_arrow(cells, name)
        elif isinstance(cells.dtype, np.dtype):
            given = cells.to_numpy()
            plain = computable_array(given)
            if plain is given:
                continue
            replacement = pd.Series(plain, index=cells.index, dtype=plain.dtype)
        else:
            continue
        result = frame.copy(deep=False) if result is frame else result
        result.isetitem(place, replacement)
    return result


def _check_names(names: pd.Index) -> None:
    twice = names[names.duplicated()]
    if len(twice):
        raise DataError(f"Column name {brief(twice[0])} occurs more than once; rename the columns.")
    for place, name in enumerate(names):
        if is_scalar(name) and pd.isna(name):  # as it may not equal itself
            raise DataError(f"The column in place {place} has no name ({name}); give it one.")
    kinds = {type(name).__name__ for name in names}
    if "str" in kinds and len(kinds) > 1:
        raise DataError(
            f"Column names are of types {' and '.join(sorted(kinds))}; make all of them text: "
            "table.columns = table.columns.astype(str)."
        )


def computable_array(array: np.ndarray) -> np.ndarray:
    """The array with cells that pandas can compute with; see `computable`."""
    # Floats of over 64 bits, for which neither Arrow nor torch has a type.
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # infinite then, as integers beyond float64 are
            return array.astype(np.float64)
    if array.dtype.kind not in "OSU" or all(_plain(cell) is cell for cell in array.flat):
        return array
    return np.fromiter(map(_plain, array.flat), dtype=object).reshape(array.shape)


def _from_arrow(cells: pd.Series, name: Hashable) -> pd.Series:
    values = pa.array(cells.array)
    if values.type == "time64[ns]":  # Python has microseconds
        values = values.cast("time64[us]", safe=False)
    try:
        plain = _in_text_order(values.to_pandas()).set_axis(cells.index)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _unreadable(f"Column {brief(name)} ({values.type})", error) from error
    return plain.map(_plain) if pa.types.is_binary(values.type) else plain


def _is_number(kind: pa.DataType) -> bool:
    # The question of pandas fails for types that it does not know.
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _plain(cell: Any) -> Any:
    """The cell, or what takes its place; see `computable`."""
    if isinstance(cell, str):
        is_plain = cell.isascii() or _LONE_SURROGATES.search(cell) is None
        return cell if is_plain else cell.encode(errors="backslashreplace").decode()
    if isinstance(cell, bytes):  # as SAS, ARFF and HDF5 files and NumPy have text
        return text_of(cell)
    if isinstance(cell, np.ndarray):
        return cell if cell.ndim else cell[()]
    if isinstance(cell, Decimal):
        return math.nan if cell.is_snan() else cell
    if isinstance(cell, np.datetime64):
        return pd.Timestamp(cell)
    if isinstance(cell, np.longdouble):
        return float(cell)
    if isinstance(cell, Fraction):
        return float(cell) if abs(cell) <= LARGEST else _plain(int(cell))
    if isinstance(cell, int) and abs(cell) > LARGEST:
        return math.inf if cell > 0 else -math.inf
    if type(cell).__name__ == "Tensor" and cell.ndim == 0:
        return cell.item()
    return cell
