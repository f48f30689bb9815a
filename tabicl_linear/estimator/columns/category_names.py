"""Names of categories: the text of a cell, by which categories are told apart and found again."""

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
from tabicl_linear.estimator.columns.cells import TRUTHS, are_missing, decimals
from tabicl_linear.estimator.notices import brief, listed, warn_user

_ESCAPE = r"\\(?:x[0-9a-f]{2}|[\\'nrt])"
_BYTES = re.compile(rf"""b(?:'(?:[ -&(-\[\]-~]|{_ESCAPE})*'|"(?:[ !#-\[\]-~]|{_ESCAPE})*")""")
"""Bytes as Python writes them."""


def category_names(cells: pd.Series, *, boolean: bool = False) -> npt.NDArray[Any]:
    """The cells as text, so that 1, 1.0 and '1' are one category; None where missing.

    So are 5.1 in float64 and in float32.
    """
    absent = are_missing(cells)
    if dtypes.is_object_dtype(cells.dtype):  # cells may be unhashable: one by one
        names = np.array([text_of(value) for value in cells], dtype=object)
    else:
        codes, distinct = pd.factorize(cells)
        # Code -1 (missing) selects the appended name.
        names = np.array([*texts_of(distinct, cells.dtype), None], dtype=object)[codes]
    if boolean:
        names = np.array([TRUTHS.get(str(v).lower(), v) for v in names], dtype=object)
    names[absent] = None
    return names


def texts_of(values: Any, dtype: Any) -> list[str]:
    """The text of each of some values, an array or index, that cells of a dtype hold."""
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
    # The text of an array leaves out what is in the middle of a long one.
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def looked_up(names: npt.NDArray[np.object_], values: Mapping[str, float]) -> FloatArray:
    """The value of each category by its name; NaN where there is none.

    A name that is not there counts as the one that is the same number, truth value or time: files
    turn 007 into 7 and TRUE into True wherever all cells look like that, and the text of a date is
    another in each of its types. So does text that differs in blanks, or in the form of accents,
    and what pandas and Python write of bytes, as "b'a'".
    """
    numbers = pd.Series(names, dtype=object).map(dict(values)).to_numpy(np.float64, copy=True)
    unknown = np.isnan(numbers) & ~pd.isna(names)
    if unknown.any():
        by_meaning: dict[object, list[float]] = {}
        for name, value in values.items():
            by_meaning.setdefault(_meaning(name), []).append(value)
        matches = [by_meaning.get(_meaning(name), ()) for name in names[unknown]]
        numbers[unknown] = [match[0] if len(match) == 1 else np.nan for match in matches]
    return numbers


def canonical(name: str) -> str:
    """One text for all names that `looked_up` takes for the same."""
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
    """Say that some names differ in blanks around them alone, as cells of a spreadsheet do."""
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
    """The time that a text stands for (ISO 8601), in UTC without zone, or None if it is no date."""
    try:
        time = datetime.fromisoformat(text)
        return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # of years before 1 in UTC
        return None


def number_of(text: str) -> float | None:
    """The number that a text stands for, or None if it is not a number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def place_of(name: str) -> tuple[bool, float, str]:
    """Where a category stands among others: numbers first, by size, then texts."""
    number = number_of(name)
    return (number is None, 0.0 if number is None else number, name)
