"""Columns of dates of which some have a time zone and others have none."""

import re
from datetime import datetime

import pandas as pd
from pandas.api import types as dtypes

_ZONE_OF_TEXT = re.compile(
    r"[Tt ]\d{1,2}(?::?\d{2}){0,2}(?:[.,]\d+)?\s?(?:[AaPp][Mm]\s?)?"
    r"(?:[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)\s*$"
)
"""A time of day with a zone behind it, at the end of a text."""


def differ_in_zone(dates: pd.Series) -> bool:
    """Whether some dates have a time zone and others have none; none is missing.

    They may be of any type, text among them.
    """
    if dtypes.is_datetime64_any_dtype(dates.dtype):
        return False
    distinct = dates.astype(object).drop_duplicates()
    return distinct.map(_has_zone).nunique() > 1


def _has_zone(date: object) -> bool:
    if isinstance(date, str):
        return _ZONE_OF_TEXT.search(date) is not None
    return isinstance(date, datetime) and date.tzinfo is not None
