"""What text in files stands for: missing values, numbers and dates."""

import re

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError

MISSING_MARKS = ("", "?")
"""Further texts that are missing values in a column of numbers, once blanks are removed."""


def numbers_with_marks(column: pd.Series) -> pd.Series:
    """A text column as numbers if all else in it is blank or "?"; otherwise as it is."""
    if not _is_text(column):
        return column
    text = column.astype(object).map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    absent = text.isna() | text.isin(MISSING_MARKS)
    numbers = pd.to_numeric(text.mask(absent, np.nan), errors="coerce")
    if absent.all() or numbers[~absent].isna().any():
        return column
    return numbers


def without_marks(column: pd.Series) -> pd.Series:
    """The column of a table to predict, whose training column holds numbers: marks are missing.

    Other text stays, for an error that names it.
    """
    if not _is_text(column):
        return column
    text = column.astype(object)
    marked = [isinstance(cell, str) and cell.strip() in MISSING_MARKS for cell in text]
    return numbers_with_marks(text.mask(np.array(marked), np.nan))


def dates(column: pd.Series, name: str, where: str) -> pd.Series:
    """A text column as dates and times.

    Args:
        column: The cells.
        name: Of the column, for the message.
        where: Name of the file, for the message.

    Raises:
        DataError: A cell is no date; the message names the first one and its row.
    """
    if dtypes.is_datetime64_any_dtype(column.dtype):
        return column
    read = pd.to_datetime(column, errors="coerce", format="ISO8601")
    if (read.isna() & column.notna()).any():
        read = pd.to_datetime(column, errors="coerce", format="mixed")
    wrong = (read.isna() & column.notna()).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{where}: --dates {name}: {column.iloc[row]!r} in row {row + 1} is no date; write "
            "dates as 2024-12-31, or leave the column out of --dates."
        )
    return read


def row_numbers(table: pd.DataFrame) -> list[str]:
    """Columns that look like numbers of rows: without a name, or consecutive integers."""
    found = []
    for name, column in table.items():
        is_count = (
            len(column) >= MIN_ROW_NUMBERS
            and dtypes.is_integer_dtype(column.dtype)
            and not column.isna().any()
            and bool((column.diff().iloc[1:] == 1).all())
        )
        if is_count or re.fullmatch(r"Unnamed: \d+", str(name)):
            found.append(str(name))
    return found


MIN_ROW_NUMBERS = 30
"""Consecutive integers that are no coincidence."""


def _is_text(column: pd.Series) -> bool:
    return dtypes.is_object_dtype(column.dtype) or dtypes.is_string_dtype(column.dtype)
