"""Text columns that hold dates, as `--dates` of `tabicl-linear predict` names them."""

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
    """Cells of one column in several files, as dates and times (UTC) in one format for all of them.

    Where days and months may be told apart in two ways, `date_format` chooses; a warning says the
    format if it is not ISO 8601. Text in several formats is read if each text says one date only.
    Columns are pairs of a file's name and its cells.

    Raises:
        DataError: A cell is no date, or may be one of two; the message names the first and its row.
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
    """Cells as text; None where they are missing, or a placeholder such as "?"."""
    texts = pd.Series([text_of(cell).strip() for cell in column], index=column.index, dtype=object)
    return texts.mask(column.isna() | are_placeholders(texts), None)


def _in_any_format(texts: pd.Series, name: str, file: str) -> pd.Series:
    plain = read_dates(texts, ISO)  # of which pandas, too, would take some with the day first
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that days come first, or do not
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
