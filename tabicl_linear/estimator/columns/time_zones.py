"""Which dates of a column have a time zone; those without count as UTC."""

import re
from datetime import datetime

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

_ZONE_OF_TEXT = re.compile(
    r"[Tt ]\d{1,2}(?::?\d{2}){0,2}(?:[.,]\d+)?\s?(?:[AaPp][Mm]\s?)?"
    r"(?:[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)$"
)
"""A time of day followed by a zone, at the end of a text."""
_LETTERS, _SIGNS = frozenset("ZzCT"), frozenset("+-")


def have_zones(dates: pd.Series) -> frozenset[bool]:
    """Whether dates have a time zone: {True}, {False} or, if they differ, both.

    The dates may be of any type, including text; none is missing.
    """
    if isinstance(dates.dtype, pd.CategoricalDtype):
        return have_zones(dates.cat.categories[np.unique(dates.cat.codes)].to_series())
    if dtypes.is_datetime64_any_dtype(dates.dtype) and len(dates):
        return frozenset((dates.dt.tz is not None,))
    return frozenset(map(_has_zone, dates.to_numpy(object)))


def _has_zone(date: object) -> bool:
    if not isinstance(date, str):
        return isinstance(date, datetime) and date.tzinfo is not None
    text = date.rstrip()
    # Most texts cannot end with a zone, and this shows it in less time than the pattern.
    can_end = text[-1] in _LETTERS or not _SIGNS.isdisjoint((text[-3:-2], text[-5:-4], text[-6:-5]))
    return can_end and _ZONE_OF_TEXT.search(text) is not None
