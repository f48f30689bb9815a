"""Decides what the cells of a column hold: numbers, dates, booleans or categories.

A column is read by what it *holds*, not by the dtype it came with: text that is all numbers counts
as numbers, and pandas' `str`, `string` and `object` columns are treated alike.
"""

from datetime import date
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import IntArray
from tabicl_linear.estimator.columns.cells import (
    DATE_KINDS,
    TRUTHS,
    are_missing,
    parsed_numbers,
    unusable,
)
from tabicl_linear.estimator.columns.text_formats import (
    ISO,
    NO_UNIT,
    TIMES,
    are_instances,
    are_placeholders,
    date_format,
    dates_among,
    read_dates,
    short_year_format,
    unit_of,
    units_behind,
)
from tabicl_linear.estimator.notices import brief, listed, warn_user

_BOOLEANS = (bool, np.bool_)

MIN_FREE_TEXTS = 20
"""Fewer different texts than this are categories, however long they are."""
MIN_FREE_WORDS = 5
"""Different texts with at least this many words on average are free text, not categories."""
MIN_AMOUNTS = 20
"""Least number of different numbers with a unit for a warning that they are read as categories."""

Kind = Literal["numeric", "datetime", "boolean", "categorical"]


class Reading(NamedTuple):
    """How the cells of a column are read.

    Attributes:
        kind: What they hold.
        text_format: How text is written. For numbers it is the decimal sign, "." or ",", followed
            by their unit or `NO_UNIT`, for example ".$"; for dates it is their format. Files of
            version 0.2.0 have the decimal sign alone, with which any unit is accepted.
        note: What users should know about text that is read as numbers or dates; mostly empty.
    """

    kind: Kind
    text_format: str = ""
    note: str = ""


PLAIN_NUMBERS = Reading("numeric", "." + NO_UNIT)
"""How numbers of any dtype are read, and text that needs no note."""
DATES = Reading("datetime", ISO)
_OBJECTS = {
    "boolean": Reading("boolean"),
    **dict.fromkeys(DATE_KINDS, DATES),
    "time": Reading("datetime", TIMES[-1]),
}
"""How columns of objects of one kind are read, by pandas' name of the kind."""


def read_as(cells: pd.Series) -> Reading:
    """How to read a training column; messages call it by the name of the series.

    Raises:
        DataError: The column holds durations, periods, intervals, complex numbers or free text; the
            message says what to give instead.
    """
    dtype = cells.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return Reading("categorical")
    if dtypes.is_bool_dtype(dtype):
        return Reading("boolean")
    if dtypes.is_datetime64_any_dtype(dtype):
        return DATES
    if isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype) or dtypes.is_complex_dtype(dtype):
        raise unusable(cells, f"{dtype} values", "turn them into numbers or text")
    if dtypes.is_timedelta64_dtype(dtype):
        raise unusable(cells, "durations", "give their .dt.total_seconds()")
    if dtypes.is_numeric_dtype(dtype):
        return PLAIN_NUMBERS
    return _read_objects_as(cells)


def _read_objects_as(cells: pd.Series) -> Reading:
    """How to read a column of text or of Python objects."""
    present = cells[~are_missing(cells)]
    content = dtypes.infer_dtype(present, skipna=True)
    if content in _OBJECTS:
        return _OBJECTS[content]
    if content.startswith("mixed") and _are_truths(present):
        return Reading("boolean")
    if content in ("timedelta", "timedelta64"):
        raise unusable(cells, "durations", "give them as a number of seconds")
    if content in ("period", "interval"):
        raise unusable(cells, f"{content} values", "turn them into numbers or text")
    # Each text once, since a long column has few different ones.
    values, counts = present, np.ones(len(present), dtype=np.int64)
    if content == "string":
        codes, distinct = pd.factorize(present)
        values, counts = pd.Series(distinct, dtype=object, name=cells.name), np.bincount(codes)
    # Text that stands for a missing number is a category like others if there are no numbers.
    is_mark = are_placeholders(values)
    marks, values, counts = values[is_mark], values[~is_mark], counts[~is_mark]
    if values.empty:
        return Reading("categorical")
    reading = _read_as_numbers(values) or _read_as_dates(values)
    if reading is None:
        _warn_of_mixed(values, counts, content)
        if content == "string":
            _refuse_free_text(present)
            _warn_of_short_years(values)
            _warn_of_unit_behind(values)
        return Reading("categorical")
    notes = [reading.note] if reading.note else []
    if not marks.empty:
        notes.append(f"{marks.iloc[0]!r} as missing")
    return reading._replace(note=", ".join(notes))


def _read_as_numbers(values: pd.Series) -> Reading | None:
    """How to read values as numbers of one unit and with one decimal sign; None if not possible."""
    plain = ~np.isnan(parsed_numbers(values, ""))
    if plain.all():
        return PLAIN_NUMBERS._replace(note=_note_of_points(values))
    # Most columns hold no numbers, and their first text shows it.
    signs = [sign for sign in (".", ",") if not np.isnan(parsed_numbers(values[:1], sign)).any()]
    units = {unit_of(value) for value in values if isinstance(value, str)} if signs else set()
    if len(units - {""}) > 1 or {"%", ""} <= units:
        return None  # amounts in several currencies are not comparable, nor "5 %" and "5"
    by_sign = {sign: parsed_numbers(values, sign) for sign in signs}
    fitting = [sign for sign in signs if not np.isnan(by_sign[sign]).any()]
    if not fitting:
        return None
    note = f"{values[~plain].iloc[0]!r} as numbers"
    if len(fitting) > 1:  # 1,234 is one number in the USA and another one in Germany
        ambiguous = np.flatnonzero(by_sign["."] != by_sign[","])
        if len(ambiguous):
            first, other = (by_sign[sign][ambiguous[0]] for sign in fitting)
            note = f"{values.iloc[ambiguous[0]]!r} as the number {first:g}, not {other:g}"
    return Reading("numeric", fitting[0] + ("".join(units) or NO_UNIT), note)


def _note_of_points(values: pd.Series) -> str:
    """The note for numbers such as 1.234, which are others in the USA than in Germany."""
    pointed = values[[isinstance(value, str) and "." in value for value in values]]
    # Most columns cannot be read with a decimal comma, and one number shows it.
    if not len(pointed) or np.isnan(parsed_numbers(pointed[:1], ",")).any():
        return ""
    by_comma = parsed_numbers(values, ",")
    if np.isnan(by_comma).any():
        return ""
    first, other = parsed_numbers(pointed[:1], "")[0], parsed_numbers(pointed[:1], ",")[0]
    return f"{pointed.iloc[0]!r} as the number {first:g}, not {other:g}"


def _read_as_dates(values: pd.Series) -> Reading | None:
    """Date objects, text in one format, or both, as in spreadsheets and tables in pieces."""
    are_dates = are_instances(values, date)
    texts = values[~are_dates]
    if texts.empty:
        return DATES
    if not are_instances(texts, str).all():
        return None
    text_format = date_format(texts)
    if text_format is None or (are_dates.any() and text_format in TIMES):
        return None
    return Reading("datetime", text_format, f"{texts.iloc[0]!r} as dates ({text_format})")


def _are_truths(values: pd.Series) -> bool:
    return bool(are_instances(values, _BOOLEANS).any()) and all(
        str(value).lower().removesuffix(".0") in TRUTHS for value in values
    )


def _warn_of_mixed(values: pd.Series, counts: IntArray, content: str) -> None:
    """Warn if most cells of a column of categories, or some objects, are numbers or dates.

    `counts` says how many cells have each value.
    """
    are_booleans = are_instances(values, _BOOLEANS)
    are_numbers = ~np.isnan(parsed_numbers(values, "."))
    # Most texts have no comma, and that is quick to see.
    has_comma = ~are_numbers & [isinstance(value, str) and "," in value for value in values]
    are_numbers[has_comma] = ~np.isnan(parsed_numbers(values[has_comma], ","))
    kinds = (
        ("numbers", "is numeric", are_numbers & ~are_booleans),
        ("dates", "holds dates", dates_among(values)),
        ("booleans", "holds booleans", are_booleans),
    )
    for what, if_it, fitting in kinds:
        others, num_others = values[~fitting], counts[~fitting].sum()
        if not len(others):
            _warn_of_several(values, what)
            return
        if num_others < counts.sum() / 2 or (content.startswith("mixed") and fitting.any()):
            warn_user(
                f"Column {brief(values.name)} mixes {what} with other values such as "
                f"{brief(others.iloc[0])} ({num_others} of {counts.sum()} training rows): it "
                f"is read as categories. Replace those values by NaN if the column {if_it}."
            )
            return


def _warn_of_several(values: pd.Series, what: str) -> None:
    """Warn that all cells of a column are numbers, or dates, but not written alike."""
    texts = values.astype(str)
    if what == "numbers":
        kind, remedy = "units or notations", "write all of them alike, in one unit"
        ways = zip(texts.map(unit_of), np.isnan(parsed_numbers(values, ".")), strict=True)
        examples = list(dict(zip(ways, values, strict=True)).values())
    else:
        kind, remedy = "formats", "convert them by pandas.to_datetime(column, format=...)"
        others = read_dates(texts, date_format(texts[:1]) or ISO).isna()
        examples = [values.iloc[0], *values[others][:1]]
    warn_user(
        f"Column {brief(values.name)} mixes {what} in several {kind}, such as "
        f"{listed(map(brief, examples))}: it is read as categories; {remedy}."
    )


def _warn_of_short_years(values: pd.Series) -> None:
    """Warn if categories look like dates in which the year cannot be told from the other parts."""
    text_format = short_year_format(values)
    if text_format is not None:
        warn_user(
            f"Column {brief(values.name)} has values such as {values.iloc[0]!r}, which look like "
            "dates whose year has two digits: it is read as categories. If the column holds dates, "
            f"write years in full, as by pandas.to_datetime(column, format={text_format!r}), or "
            "the format that it has."
        )


def _warn_of_unit_behind(values: pd.Series) -> None:
    """Warn if categories are many different numbers followed by a unit, or by scales (k, M)."""
    if len(values) >= MIN_AMOUNTS and (units := units_behind(values)):
        warn_user(
            f"Column {brief(values.name)} has {len(values)} different values such as "
            f"{brief(values.iloc[0])}, numbers with {listed(map(brief, units))} behind them: "
            "it is read as categories. If they are amounts, give the numbers alone."
        )


def _refuse_free_text(present: pd.Series) -> None:
    """Raise `DataError` if a column of text holds sentences rather than categories."""
    texts = present.drop_duplicates().astype(str)
    words = texts.str.split().str.len().mean()
    if len(texts) < MIN_FREE_TEXTS or len(texts) < len(present) / 2 or words < MIN_FREE_WORDS:
        return
    raise DataError(
        f"Column {brief(present.name)} holds free text ({len(texts)} different values with "
        f"{words:.0f} words on average, such as {brief(texts.iloc[0])}): drop it, turn it into "
        "numbers beforehand (for example with TfidfVectorizer and TruncatedSVD of scikit-learn), "
        "or name it in categorical_features."
    )
