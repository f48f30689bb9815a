"""Names of categories: the text of a cell, which identifies its category."""

import math
import re
import unicodedata
from ast import literal_eval
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.estimator.arrays import FloatArray
from tabicl_linear.estimator.columns.cells import MISSING_TEXT, TRUTHS, are_missing, decimals
from tabicl_linear.estimator.notices import brief, listed, warn_user

_ESCAPE = r"\\(?:x[0-9a-f]{2}|[\\'nrt])"
_BYTES = re.compile(rf"""b(?:'(?:[ -&(-\[\]-~]|{_ESCAPE})*'|"(?:[ !#-\[\]-~]|{_ESCAPE})*")""")
"""Bytes as their `repr` writes them."""


def category_names(cells: pd.Series, *, boolean: bool = False) -> npt.NDArray[Any]:
    """The cells as text, so that 1, 1.0 and '1' are one category; None where missing.

    5.1 in float64 and 5.1 in float32 are one category as well.
    """
    if dtypes.is_object_dtype(cells.dtype):  # one by one, since cells may be unhashable
        names = np.array([text_of(value) for value in cells], dtype=object)
        names[are_missing(cells)] = None
    else:
        # Arrow 18 cannot tell which floats of half precision are equal.
        is_half = cells.dtype == "halffloat[pyarrow]"
        codes, distinct = pd.factorize(cells.astype("float[pyarrow]") if is_half else cells)
        texts = texts_of(distinct, cells.dtype)
        # Code -1 (missing) selects the appended name.
        names = np.array([*texts, None], dtype=object)[codes]
        if isinstance(cells.dtype, pd.StringDtype | pd.CategoricalDtype):
            # Each value is asked once, and not each cell, which takes long for a single row.
            absent = [value in MISSING_TEXT for value in distinct]
            names[np.array([*absent, True])[codes]] = None
        else:
            names[are_missing(cells)] = None
    if boolean:
        names = np.array([TRUTHS.get(str(v).lower(), v) for v in names], dtype=object)
    return names


def texts_of(values: Any, dtype: Any) -> list[str]:
    """The text of each value in an array or index; `dtype` is that of the cells with the values."""
    dtype = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    if dtypes.is_float_dtype(dtype):
        values = decimals(np.asarray(values, dtype=np.float64), dtype)
    return [text_of(value) for value in values]


def text_of(value: object) -> str:
    """Text that is the same for 1, 1.0 and '1', and for 'a' and b'a' (UTF-8, or its escapes)."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    # As a list, since the text of a long array leaves out its middle.
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def looked_up(names: npt.NDArray[np.object_], values: Mapping[str, float]) -> FloatArray:
    """The value of each category, looked up by its name; NaN where there is none.

    A name that `values` lacks stands for the one with the same meaning, if there is exactly one:
    the same number, truth value or time. Files turn 007 into 7 and TRUE into True if all cells look
    like that, and a date has another text in each type. Blanks, the form of accents, and bytes
    written as "b'a'" make no difference either.
    """
    # Without `Series.map`, which takes as long for one row as for thousands.
    numbers = np.fromiter((values.get(name, np.nan) for name in names), np.float64, len(names))
    unknown = np.isnan(numbers) & ~pd.isna(names)
    if unknown.any():
        by_meaning: dict[object, list[float]] = {}
        for name, value in values.items():
            by_meaning.setdefault(_meaning(name), []).append(value)
        places, distinct = pd.factorize(names[unknown])
        matches = [by_meaning.get(_meaning(name), ()) for name in distinct]
        meant = [match[0] if len(match) == 1 else np.nan for match in matches]
        numbers[unknown] = np.array(meant)[places]
    return numbers


def canonical(name: str) -> str:
    """One text for all names that have the same meaning for `looked_up`."""
    meaning = _meaning(name)
    return str(meaning.normalize() if isinstance(meaning, Decimal) else meaning)


def _meaning(name: str) -> object:
    """The number, time or truth value that a name stands for; else the name with single blanks."""
    if _BYTES.fullmatch(name):
        name = text_of(literal_eval(name))
    try:
        number = Decimal(name)  # exact, however many digits
    except InvalidOperation:
        text = " ".join(unicodedata.normalize("NFC", name).split())
        return date_of(name) or TRUTHS.get(text.lower(), text)
    return number if number.is_finite() else name


def warn_of_blanks(names: Iterable[str], what: str, remedy: str) -> None:
    """Warn of names that differ only in blanks around them, as cells of a spreadsheet may."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.strip(), []).append(name)
    alike = [" and ".join(map(brief, group)) for group in groups.values() if len(group) > 1]
    if alike:
        warn_user(
            f"{what} differ in blanks around them alone: {listed(alike)}. They are told apart; if "
            f"they are one, strip {remedy}."
        )


def date_of(text: str) -> datetime | None:
    """The time that an ISO 8601 text stands for, in UTC without zone; None if it is no date."""
    try:
        time = datetime.fromisoformat(text)
        return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # OverflowError: the year in UTC is before 1
        return None


def number_of(text: str) -> float | None:
    """The number that a text stands for, or None if it is not a number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def place_of(name: str) -> tuple[bool, float, str]:
    """Key that sorts categories: numbers first, by size, and then texts."""
    number = number_of(name)
    return (number is None, 0.0 if number is None else number, name)
