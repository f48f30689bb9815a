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

    Integers beyond float64 become infinite, which counts as missing. Of Arrow's types all but
    numbers become those of pandas and Python.

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
    replacements: dict[Hashable, pd.Series] = {}
    for name, cells in frame.items():
        if isinstance(cells.dtype, pd.ArrowDtype) and not _is_number(cells.dtype.pyarrow_dtype):
            replacements[name] = _from_arrow(cells)
        elif cells.dtype == object and any(map(_is_huge, cells)):
            finite = [_finite(cell) for cell in cells]
            replacements[name] = pd.Series(finite, index=cells.index, dtype=object)
    if not replacements:
        return frame
    # Not `assign`, whose keys are text.
    columns = {name: replacements.get(name, cells) for name, cells in frame.items()}
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


def _from_arrow(cells: pd.Series) -> pd.Series:
    values = pa.array(cells.array)
    if values.type == "time64[ns]":  # Python has microseconds
        values = values.cast("time64[us]", safe=False)
    return values.to_pandas().set_axis(cells.index)


def _is_number(kind: pa.DataType) -> bool:
    numbers = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
    return any(is_kind(kind) for is_kind in numbers)


def _is_huge(cell: object) -> bool:
    return isinstance(cell, int) and abs(cell) > LARGEST


def _finite(cell: Any) -> Any:
    """The cell, or infinity of its sign."""
    return (math.inf if cell > 0 else -math.inf) if _is_huge(cell) else cell
