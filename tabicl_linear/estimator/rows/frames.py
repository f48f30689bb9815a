"""Tables and labels of other libraries, and cells that pandas itself cannot compute with."""

import math
import sys
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_scalar

from tabicl_linear.errors import DataError

CONVERTED = ("polars", "pyarrow")
"""Libraries whose frames and columns are converted; polars is not imported for it."""
LARGEST = int(sys.float_info.max)
"""Integers beyond this are infinite as float64."""


def from_other_library(values: Any) -> Any:
    """A frame or column of polars or Arrow as one of pandas; a masked array with NaN or None.

    Anything else is returned as it is.

    Raises:
        DataError: A lazy frame, or values that pandas cannot hold.
    """
    if isinstance(values, np.ma.MaskedArray):
        is_number = values.dtype.kind in "biuf"
        plain: Any = values.astype(np.float64 if is_number else object)
        return plain.filled(np.nan if is_number else None)
    kind = type(values)
    library = kind.__module__.partition(".")[0]
    if library not in CONVERTED:
        return values
    if kind.__name__ == "LazyFrame":
        raise DataError("A polars LazyFrame has no rows yet; give frame.collect().")
    try:
        return values.to_pandas()
    # Both libraries raise errors of many kinds, by the type of a column.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"A {library} {kind.__name__} cannot be turned into pandas ({reason}); cast its "
            "columns to numbers, text or dates."
        ) from error


def computable(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with cells that pandas can compute with.

    Integers beyond float64 become infinite, which counts as missing. Arrow's dictionaries become
    categories, and its booleans, lists, structures and times those of pandas and Python.

    Raises:
        DataError: Two columns of one name, one without a name, or names of several types.
    """
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"Column name {twice[0]!r} occurs more than once; rename the columns.")
    for place, name in enumerate(frame.columns):
        if is_scalar(name) and pd.isna(name):  # as it may not equal itself
            raise DataError(f"The column in place {place} has no name ({name}); give it one.")
    kinds = {type(name).__name__ for name in frame.columns}
    if "str" in kinds and len(kinds) > 1:
        raise DataError(
            f"Column names are of types {' and '.join(sorted(kinds))}; make all of them text: "
            "table.columns = table.columns.astype(str)."
        )
    changed: dict[Hashable, pd.Series] = {}
    for name, cells in frame.items():
        if isinstance(cells.dtype, pd.ArrowDtype):
            plain = _from_arrow(cells, cells.dtype.pyarrow_dtype)
        elif cells.dtype == object:
            plain = _finite_integers(cells)
        else:
            continue
        if plain is not cells:
            changed[name] = plain
    if not changed:
        return frame
    # Not `assign`, whose keys are text.
    columns = {name: changed.get(name, cells) for name, cells in frame.items()}
    result = pd.DataFrame(columns, index=frame.index)
    result.columns = frame.columns
    return result


def computable_array(array: np.ndarray) -> np.ndarray:
    """The array with integers beyond float64 as infinities."""
    if array.dtype != object or not any(_is_huge(cell) for cell in array.flat):
        return array
    cells = [_finite(cell) for cell in array.flat]
    plain = np.empty(array.size, dtype=object)
    plain[:] = cells
    return plain.reshape(array.shape)


def _from_arrow(cells: pd.Series, kind: pa.DataType) -> pd.Series:
    if pa.types.is_boolean(kind):
        return cells.astype("boolean")
    if pa.types.is_dictionary(kind):
        return pa.array(cells.array).to_pandas().set_axis(cells.index)
    plain = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    if any(is_kind(kind) for is_kind in plain):
        return cells
    if pa.types.is_string_view(kind) or pa.types.is_run_end_encoded(kind):
        # pandas holds these, but computes nothing with them.
        return pd.Series(pa.array(cells.array).to_pylist(), index=cells.index, dtype=object)
    if kind == "time64[ns]":  # Python has microseconds
        times = pa.array(cells.array).cast("time64[us]", safe=False)
        return pd.Series(times.to_pylist(), index=cells.index, dtype=object)
    return cells.astype(object).where(cells.notna(), None)


def _finite_integers(cells: pd.Series) -> pd.Series:
    if not any(_is_huge(cell) for cell in cells):
        return cells
    return pd.Series([_finite(cell) for cell in cells], index=cells.index, dtype=object)


def _is_huge(cell: object) -> bool:
    return isinstance(cell, int) and abs(cell) > LARGEST


def _finite(cell: Any) -> Any:
    """The cell, or infinity of its sign."""
    return (math.inf if cell > 0 else -math.inf) if _is_huge(cell) else cell
