"""Converts tables and labels of other libraries, and cells that pandas cannot compute with."""

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
"""Libraries whose frames and columns are converted; polars is not imported for this."""
WITH_GAPS = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
"""pandas types for whole numbers with gaps. By default they would become floats of 16 digits."""
LARGEST = int(sys.float_info.max)
"""Integers beyond this are infinite as float64."""
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, as JSON and file names may have them. UTF-8, and so files and Arrow, cannot
hold them."""


def from_other_library(values: Any) -> Any:
    """Convert a frame or column of polars, Arrow or Dask to pandas, and a masked array to NaN.

    Anything else is returned as it is.

    Raises:
        DataError: It is a lazy frame, or has values that pandas cannot hold; the message names the
            column.
    """
    if isinstance(values, np.ma.MaskedArray):
        if not np.ma.is_masked(values):
            return values.data  # whole numbers and booleans stay what they are
        is_number = values.dtype.kind in "biuf"
        plain: Any = values.astype(np.float64 if is_number else object)
        return plain.filled(np.nan)  # None would mean NumPy's own fill value, "?"
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
    except pa.ArrowInvalid as error:  # for example text that is not UTF-8
        raise _unreadable(what, error) from error
    if kind.__name__ not in ("DataFrame", "Table", "RecordBatch"):
        return _converted(values, what)
    try:
        return _as_pandas(values)
    except Exception:  # both libraries raise many kinds of errors, by the type of a column
        return computable(_with_arrow_types(values, what))


def _with_arrow_types(values: Any, what: str) -> pd.DataFrame:
    """A frame or table with Arrow's own types, which hold everything, as a frame of pandas."""
    if isinstance(values, pa.Table | pa.RecordBatch):
        return _converted(values, what, types_mapper=pd.ArrowDtype)
    parts = {
        part.name: _converted(part, f"Column {brief(part.name)}", use_pyarrow_extension_array=True)
        for part in values
    }
    return pd.DataFrame(parts)


def _as_pandas(values: Any) -> pd.DataFrame:
    """A frame of polars or a table of Arrow as pandas; whole numbers with gaps keep all digits.

    Categories that are only in the order in which values came are sorted like text.
    """
    metadata: dict[str, Any] = {}
    # The columns in Arrow's form; None for columns of polars that do not hold whole numbers.
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
    if metadata:  # pandas wrote the table, with categories in the order that the user gave
        return frame
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype):
            frame.isetitem(place, _in_text_order(frame.iloc[:, place]))
    return frame


def _in_text_order(cells: pd.Series) -> pd.Series:
    """The cells; categories without an order are sorted like text, not as they came in."""
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

    These cells are replaced: integers beyond float64 by infinity, and signalling NaNs of `Decimal`
    by plain ones (both count as missing); lone surrogates in text by their escapes; bytes by their
    text; arrays and tensors without dimensions by what they hold; NumPy's dates among objects by
    those of pandas; `np.longdouble` and fractions by float64. Columns of Arrow's types, except
    numbers, become columns of types of pandas and Python. Sparse columns become dense, as the
    learner reads every cell, and as files of `save` hold dense ones alone.

    Raises:
        DataError: Two columns have the same name, one has no name, names are of several types, or
            pandas cannot hold a column.
    """
    _check_names(frame.columns)
    result = frame
    for place, (name, cells) in enumerate(frame.items()):
        if isinstance(cells.dtype, pd.ArrowDtype) and not _is_number(cells.dtype.pyarrow_dtype):
            replacement = _from_arrow(cells, name)
        elif isinstance(cells.dtype, pd.SparseDtype):
            dense = computable_array(cells.to_numpy(cells.dtype.subtype))
            replacement = pd.Series(dense, index=cells.index, dtype=dense.dtype)
        elif isinstance(cells.dtype, np.dtype):
            array = cells.to_numpy()
            plain = computable_array(array)
            if plain is array:
                continue
            replacement = pd.Series(plain, index=cells.index, dtype=plain.dtype)
        else:
            continue
        result = frame.copy(deep=False) if result is frame else result
        result.isetitem(place, replacement)
    return result


def _check_names(names: pd.Index) -> None:
    """Raise `DataError` if column names are missing, occur twice, or mix text and other types."""
    twice = names[names.duplicated()]
    if len(twice):
        raise DataError(f"Column name {brief(twice[0])} occurs more than once; rename the columns.")
    for place, name in enumerate(names):
        if is_scalar(name) and pd.isna(name):  # not found again: NaN does not equal itself
            raise DataError(f"The column in place {place} has no name ({name}); give it one.")
    kinds = {type(name).__name__ for name in names}
    if "str" in kinds and len(kinds) > 1:
        raise DataError(
            f"Column names are of types {' and '.join(sorted(kinds))}; make all of them text: "
            "table.columns = table.columns.astype(str)."
        )


def computable_array(array: np.ndarray) -> np.ndarray:
    """The array with cells that pandas can compute with; see `computable`."""
    # Neither Arrow nor torch has a type for floats of more than 64 bits.
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # values beyond float64 become infinite, like integers
            return array.astype(np.float64)
    if array.dtype.kind not in "OSU" or all(_plain(cell) is cell for cell in array.flat):
        return array
    return np.fromiter(map(_plain, array.flat), dtype=object).reshape(array.shape)


def _from_arrow(cells: pd.Series, name: Hashable) -> pd.Series:
    """A column of an Arrow type as one of a pandas or Python type."""
    values = pa.array(cells.array)
    if values.type == "time64[ns]":  # Python's times have microseconds
        values = values.cast("time64[us]", safe=False)
    try:
        plain = _in_text_order(values.to_pandas()).set_axis(cells.index)
    # An unknown time zone is a KeyError in pandas 2.
    except (pa.ArrowException, ValueError, OverflowError, KeyError) as error:
        raise _unreadable(f"Column {brief(name)} ({values.type})", error) from error
    return plain.map(_plain) if pa.types.is_binary(values.type) else plain


def _is_number(kind: pa.DataType) -> bool:
    # Asked of Arrow, since pandas' own check fails for types that it does not know.
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _plain(cell: Any) -> Any:
    """The cell, or what replaces it; see `computable`."""
    if isinstance(cell, str):
        is_plain = cell.isascii() or _LONE_SURROGATES.search(cell) is None
        return cell if is_plain else cell.encode(errors="backslashreplace").decode()
    if isinstance(cell, bytes):  # text from SAS, ARFF and HDF5 files, and of NumPy
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
