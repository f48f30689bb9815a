"""What the cells of a table column hold: numbers, dates, booleans or categories.

A column is read by what it *holds*, not by the dtype it came with: text that is all numbers counts
as numbers, and pandas' `str`, `string` and `object` columns are treated alike.
"""

from collections.abc import Hashable
from datetime import date, time
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import BoolArray, FloatArray, IntArray
from tabicl_linear.estimator.columns.text_formats import (
    ISO,
    NO_UNIT,
    TIMES,
    are,
    date_format,
    dates_among,
    placeholder,
    read_dates,
    short_year_format,
    unit_of,
    units_behind,
    written_number,
)
from tabicl_linear.estimator.notices import brief, listed, warn_user

MISSING_TEXT = ("", "nan")
"""Text that counts as missing: 'nan' is what numpy writes for NaN in an array of strings."""
_BOOLEANS = (bool, np.bool_)
TRUTHS = {"0": "False", "1": "True", "false": "False", "true": "True"}
"""By what stands for truth values beside booleans, as in pieces of a table, in small letters."""

MIN_FREE_TEXTS = 20
"""Fewer different texts than this are categories, however long they are."""
MIN_FREE_WORDS = 5
"""Different texts of this many words on average are free text and no categories."""
MIN_AMOUNTS = 20
"""Fewer different numbers with a unit than this do as categories."""

_SHORT_FLOATS: dict[str, Any] = {
    **dict.fromkeys(("float16", "halffloat[pyarrow]"), np.float16),
    **dict.fromkeys(("float32", "float[pyarrow]"), np.float32),
}
"""By the name of a dtype of NumPy, pandas or Arrow in small letters."""

Kind = Literal["numeric", "datetime", "boolean", "categorical"]


class Reading(NamedTuple):
    """How the cells of a column are read.

    Attributes:
        kind: What they hold.
        text_format: Of numbers the decimal sign of text, "." or ",", and behind it their unit or
            `NO_UNIT`, as ".$"; of dates the format of text. Files of version 0.2.0 have the decimal
            sign alone, with which any unit is taken.
        note: What is worth telling about text that is read as numbers or dates; mostly empty.
    """

    kind: Kind
    text_format: str = ""
    note: str = ""


PLAIN_NUMBERS = Reading("numeric", "." + NO_UNIT)
"""How numbers of any dtype are read, and text that needs no explanation."""
DATES = Reading("datetime", ISO)
_OBJECTS = {
    "boolean": Reading("boolean"),
    **dict.fromkeys(("datetime", "datetime64", "date"), DATES),
    "time": Reading("datetime", TIMES[-1]),
}
"""How objects are read that are of one kind, by what pandas calls it."""


def read_as(cells: pd.Series) -> Reading:
    """What a training column holds; messages call it by the name of the series.

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
        raise _unusable(cells, f"{dtype} values", "turn them into numbers or text")
    if dtypes.is_timedelta64_dtype(dtype):
        raise _unusable(cells, "durations", "give their .dt.total_seconds()")
    if dtypes.is_numeric_dtype(dtype):
        return PLAIN_NUMBERS
    return _read_objects_as(cells)


def _read_objects_as(cells: pd.Series) -> Reading:
    """What a column of text or of Python's objects holds."""
    present = cells[~missing(cells)]
    content = dtypes.infer_dtype(present, skipna=True)
    if content in _OBJECTS:
        return _OBJECTS[content]
    if content.startswith("mixed") and _are_truths(present):
        return Reading("boolean")
    if content in ("timedelta", "timedelta64"):
        raise _unusable(cells, "durations", "give them as a number of seconds")
    if content in ("period", "interval"):
        raise _unusable(cells, f"{content} values", "turn them into numbers or text")
    # Each text once: those of a long column are few.
    values, counts = present, np.ones(len(present), dtype=np.int64)
    if content == "string":
        codes, distinct = pd.factorize(present)
        values, counts = pd.Series(distinct, dtype=object, name=cells.name), np.bincount(codes)
    # What stands for a missing number is a category like others if there are no numbers.
    is_mark = placeholder(values)
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
    plain = ~np.isnan(_parsed(values, ""))
    if plain.all():
        return PLAIN_NUMBERS
    # Most columns hold no numbers, which one text tells.
    signs = [sign for sign in (".", ",") if not np.isnan(_parsed(values[:1], sign)).any()]
    units = {unit_of(value) for value in values if isinstance(value, str)} if signs else set()
    if len(units - {""}) > 1 or {"%", ""} <= units:
        return None  # amounts in several currencies are not comparable, nor "5 %" and "5"
    by_sign = {sign: _parsed(values, sign) for sign in signs}
    fitting = [sign for sign in signs if not np.isnan(by_sign[sign]).any()]
    if not fitting:
        return None
    note = f"{values[~plain].iloc[0]!r} as numbers"
    if len(fitting) > 1:  # 1,234 is one number in the USA and another one in Germany
        several = np.flatnonzero(by_sign["."] != by_sign[","])
        if len(several):
            first, other = (by_sign[sign][several[0]] for sign in fitting)
            note = f"{values.iloc[several[0]]!r} as the number {first:g}, not {other:g}"
    return Reading("numeric", fitting[0] + ("".join(units) or NO_UNIT), note)


def _read_as_dates(values: pd.Series) -> Reading | None:
    """Dates, text in one format, or both, as pieces of a table and spreadsheets have them."""
    are_dates = are(date, values)
    texts = values[~are_dates]
    if texts.empty:
        return DATES
    if not are(str, texts).all():
        return None
    text_format = date_format(texts)
    if text_format is None or (are_dates.any() and text_format in TIMES):
        return None
    return Reading("datetime", text_format, f"{texts.iloc[0]!r} as dates ({text_format})")


def _are_truths(values: pd.Series) -> bool:
    return bool(are(_BOOLEANS, values).any()) and all(
        str(value).lower().removesuffix(".0") in TRUTHS for value in values
    )


def _warn_of_mixed(values: pd.Series, counts: IntArray, content: str) -> None:
    """Say that most cells of a column of categories, or some objects, are numbers or dates.

    `counts` says how many cells have each value.
    """
    are_booleans = are(_BOOLEANS, values)
    are_numbers = ~np.isnan(_parsed(values, "."))
    # Most texts have no comma, which takes the least time to see.
    has_comma = ~are_numbers & [isinstance(value, str) and "," in value for value in values]
    are_numbers[has_comma] = ~np.isnan(_parsed(values[has_comma], ","))
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
    """Say that all of a column are numbers, or dates, but written in ways that do not agree."""
    texts = values.astype(str)
    if what == "numbers":
        kind, remedy = "units or notations", "write all of them alike, in one unit"
        ways = zip(texts.map(unit_of), np.isnan(_parsed(values, ".")), strict=True)
        examples = list(dict(zip(ways, values, strict=True)).values())
    else:
        kind, remedy = "formats", "convert them by pandas.to_datetime(column, format=...)"
        others = read_dates(texts, date_format(texts[:1]) or ISO).isna()
        examples = [values.iloc[0], *values[others][:1]]
    warn_user(
        f"Column {brief(values.name)} mixes {what} in several {kind}, such as "
        f"{listed(list(map(brief, examples)))}: it is read as categories; {remedy}."
    )


def _warn_of_short_years(values: pd.Series) -> None:
    """Say that categories look like dates, of which it cannot be told which part is the year."""
    text_format = short_year_format(values)
    if text_format is not None:
        warn_user(
            f"Column {brief(values.name)} has values such as {values.iloc[0]!r}, which look like "
            "dates whose year has two digits: it is read as categories. If the column holds dates, "
            f"write years in full, as by pandas.to_datetime(column, format={text_format!r}), or "
            "the format that it has."
        )


def _warn_of_unit_behind(values: pd.Series) -> None:
    """Say that categories are many different numbers with one unit behind them, or with scales."""
    if len(values) >= MIN_AMOUNTS and (units := units_behind(values)):
        warn_user(
            f"Column {brief(values.name)} has {len(values)} different values such as "
            f"{brief(values.iloc[0])}, numbers with {listed(list(map(brief, units)))} behind them: "
            "it is read as categories. If they are amounts, give the numbers alone."
        )


def _refuse_free_text(present: pd.Series) -> None:
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


def _unusable(cells: pd.Series, what: str, remedy: str) -> DataError:
    """What to raise about a column that cannot be read."""
    return DataError(f"Column {brief(cells.name)} holds {what}; {remedy}.")


def unlike_training(name: Hashable, held: str, holds: str, remedy: str) -> DataError:
    """What to raise about a column of other cells than those of the training table."""
    return DataError(
        f"Column {brief(name)} held {held} in the training table and holds {holds}; {remedy}."
    )


def missing(cells: pd.Series) -> BoolArray:
    """Which cells count as missing: None, NaN, NA, NaT, +-infinity and the texts '' and 'nan'."""
    if dtypes.is_numeric_dtype(cells.dtype):
        return ~np.isfinite(cells.to_numpy(dtype=np.float64, na_value=np.nan))
    absent = cells.isna().to_numpy(dtype=bool)
    if dtypes.is_object_dtype(cells.dtype):  # cells may be unhashable: no `isin`
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
        raise _unusable(cells, "complex numbers", "give real numbers")
    absent = missing(cells)
    if not absent.all() and _holds_dates(cells):
        other = f"dates here ({cells[~absent].iloc[0]})"
        raise unlike_training(cells.name, "numbers", other, "convert it")
    if dtypes.is_numeric_dtype(cells.dtype):
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        values = decimals(values, cells.dtype)
    else:
        values = _parsed(cells, text_format[:1])
        wrong = np.isnan(values) & ~absent
        if wrong.any():
            wrong &= ~placeholder(cells)
        if wrong.any():
            other = f"{brief(cells[wrong].iloc[0])} here"
            raise unlike_training(cells.name, "numbers", other, "give numbers or missing values")
        if unit := text_format[1:]:
            is_number = ~np.isnan(values)
            if unit != "%":  # what pandas reads has no unit, and fits
                is_number &= np.isnan(_parsed(cells, ""))
            _refuse_other_unit(cells[is_number], unit)
    values[~np.isfinite(values)] = np.nan
    return values


def _refuse_other_unit(cells: pd.Series, unit: str) -> None:
    """Refuse text in another unit; text without one counts as in the unit, except of percent."""
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
        cells = cells.astype(object)  # of dates or of text: what the categories are
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
    """Time stamps of text in one format, with or without objects of Python among it."""
    objects = cells.astype(object)
    absent = missing(cells) | placeholder(objects)
    times = read_dates(objects.where(are(str, objects) & ~absent), text_format)
    if text_format in TIMES:
        texts = [value.isoformat() if isinstance(value, time) else None for value in objects]
        of_day = pd.Series(texts, index=cells.index, dtype=object)
        times = times.fillna(read_dates(of_day, TIMES[-1]))
    else:
        dates = objects.where(are(date, objects) & ~absent)
        times = times.fillna(pd.to_datetime(dates, utc=True).dt.as_unit("us"))
    wrong = times.isna().to_numpy() & ~absent
    if wrong.any():
        like = "" if text_format == ISO else f", as text in the format {text_format}"
        other = f"no dates here ({brief(objects[wrong].iloc[0])})"
        raise unlike_training(cells.name, "dates", other, f"give dates{like}")
    return times


def _holds_dates(cells: pd.Series) -> bool:
    if dtypes.is_object_dtype(cells.dtype):
        return _OBJECTS.get(dtypes.infer_dtype(cells, skipna=True)) == DATES
    return bool(dtypes.is_datetime64_any_dtype(cells.dtype))


def _parsed(cells: pd.Series, decimal: str) -> FloatArray:
    """The numbers that texts and objects stand for; NaN where they are not numbers.

    Without a decimal sign only what pandas reads counts as a number.
    """
    numbers = pd.to_numeric(cells.astype(object), errors="coerce")
    if dtypes.is_complex_dtype(numbers.dtype):
        raise _unusable(cells, "complex numbers", "give real numbers")
    values = numbers.to_numpy(dtype=np.float64, copy=True)
    if decimal:
        objects = cells.to_numpy(dtype=object)
        # "1.234" means another number where the comma is the decimal sign.
        for row in range(len(values)) if decimal == "," else np.flatnonzero(np.isnan(values)):
            if isinstance(objects[row], str):
                values[row] = written_number(objects[row], decimal)
    return values


def decimals(values: FloatArray, dtype: Any) -> FloatArray:
    """The decimals of few digits that values of a dtype stand for, so 5.1 in float32 is 5.1.

    Learners compare values with those of the context, so that 5.0999999 and 5.1 may be told apart.
    A float64 table and the same table in float32 would then get different predictions. Values of
    wide dtypes stay as they are, and so do those that no decimal of so few digits (3 in float16, 6
    in float32) is rounded to.
    """
    of_cells = dtype.subtype if isinstance(dtype, pd.SparseDtype) else dtype
    kind = _SHORT_FLOATS.get(str(of_cells).lower())
    if kind is None:
        return values
    present = np.isfinite(values) & (values != 0)
    digits = np.finfo(kind).precision
    places = np.zeros_like(values)
    places[present] = digits - 1 - np.floor(np.log10(np.abs(values[present])))
    # Powers of ten are exact up to 22, so dividing by them gives the float64 next to the decimal.
    up, down = 10.0 ** places.clip(0), 10.0 ** (-places).clip(0)
    rounded = np.rint(values * up / down) * down / up
    with np.errstate(over="ignore", invalid="ignore"):
        stands_for = present & (rounded.astype(kind) == values.astype(kind))
    return np.where(stands_for, rounded, values)
