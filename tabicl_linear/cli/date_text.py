"""Reads the text columns that `--dates` of `tabicl-linear predict` declares to be dates."""

import warnings
from collections.abc import Sequence

import pandas as pd

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.category_names import text_of
from tabicl_linear.estimator.columns.text_formats import (
    ISO,
    are_placeholders,
    date_format,
    read_dates,
)
from tabicl_linear.estimator.columns.time_zones import have_zones
from tabicl_linear.estimator.notices import warn_user


def read_dates_of(columns: Sequence[tuple[str, pd.Series]], name: str) -> list[pd.Series]:
    """Parse one column of several files as dates and times, with one format for all files.

    `date_format` chooses the format, also where day and month could be swapped; a warning names
    it if it is not ISO 8601. Columns that mix formats are read if no cell can mean two dates.

    Args:
        columns: The name of each file, with the cells of its column.
        name: Name of the column.

    Returns:
        A series for each file, of times in UTC without a time zone; NaT where a cell is missing.

    Raises:
        DataError: A cell is not a date, or could mean two; the message names the first such cell.
    """
    texts = [_present_texts(column) for _, column in columns]
    present = pd.concat(texts, ignore_index=True).dropna()
    if len(have_zones(present)) > 1:
        warn_user(
            f"--dates {name}: some dates have a time zone and others have none, which count as "
            "UTC; give all of them their zone, or none."
        )
    text_format = date_format(present) if len(present) else ISO
    if text_format is None:
        times = [
            _in_any_format(text, name, file) for (file, _), text in zip(columns, texts, strict=True)
        ]
    else:
        if text_format != ISO:
            warn_user(f"--dates {name}: {present.iloc[0]!r} is read in the format {text_format}.")
        times = [read_dates(text, text_format) for text in texts]
    return [stamps.dt.tz_localize(None) for stamps in times]


def _present_texts(column: pd.Series) -> pd.Series:
    """Cells as text; None for missing cells and for placeholders such as "?"."""
    texts = pd.Series([text_of(cell).strip() for cell in column], index=column.index, dtype=object)
    return texts.mask(column.isna() | are_placeholders(texts), None)


def _in_any_format(texts: pd.Series, name: str, file: str) -> pd.Series:
    """Parse texts of mixed formats; a text that means another date with the day first is an error.

    ISO 8601 comes first: pandas would read some of its dates, too, with the day first.
    """
    plain = read_dates(texts, ISO)
    with warnings.catch_warnings():
        # pandas warns if a text contradicts `dayfirst`.
        warnings.simplefilter("ignore", UserWarning)
        month_first, day_first = (
            plain.fillna(
                pd.to_datetime(texts, errors="coerce", format="mixed", utc=True, dayfirst=order)
            )
            for order in (False, True)
        )
    present = texts.notna()
    for wrong, what in (
        (month_first.isna() & present, "is no date"),
        ((month_first != day_first) & present, "may be one of two dates"),
    ):
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise DataError(
                f"{file}: --dates {name}: {texts.iloc[row]!r} in row {row + 1} {what}; write dates "
                "as 2024-12-31, or leave the column out of --dates."
            )
    return month_first
