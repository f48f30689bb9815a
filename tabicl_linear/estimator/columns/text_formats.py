"""Numbers and dates written as text: currencies, percent, separators of thousands, formats."""

import re
import warnings
from datetime import date

import numpy as np
import pandas as pd
from pandas.tseries.api import guess_datetime_format

from tabicl_linear.estimator.arrays import BoolArray

ISO = "ISO8601"
"""pandas' name for all formats of ISO 8601, with or without time."""
TIMES = ("%I:%M %p", "%I:%M:%S %p", "%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
"""Formats of times of day; `read_dates` takes the last one without a fraction, too."""
_OF_DATABASES = "%d-%b-%y"
"""Years of two digits are read if the month has a name, as Oracle writes dates."""
_SHORT_YEARS = (
    *("%m/%d/%y", "%d/%m/%y", "%y/%m/%d"),
    *("%d.%m.%y", "%m-%d-%y", "%d-%m-%y", "%y-%m-%d"),
)
"""Other formats with years of two digits, which only a warning names; likelier ones first."""
_WITH_POINTS = re.compile(r"\d{1,2}\.\d{1,2}\.")
"""Beginning of a date with points between its parts."""
_HALF_OF_DAY = re.compile(r"(\s?)[AaPp][Mm]$")
_LETTER = re.compile("[A-Za-z]")
NO_UNIT = "#"
"""Follows the decimal sign in the format of a column without a unit."""
PLACEHOLDERS = frozenset(
    (
        *("", "?", "-", "--", ".", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none"),
        *("n.a.", "\u2013", "\u2014", "#div/0!", "#value!", "#ref!", "#num!"),
    )
)
"""Texts that stand for a missing value among numbers or dates, in any case."""

# Numbers with separators of thousands have no exponent and no leading zero: the comma in 0,126 is a
# decimal comma.
_NUMBER = {
    ".": re.compile(
        r"(?P<whole>[-+]?(?:\d+|[1-9]\d{0,2}(?:[, '\u2019]\d{3})+|[1-9]\d?(?:,\d{2})+,\d{3}))"
        r"(?P<part>\.\d*)?"
    ),
    ",": re.compile(r"(?P<whole>[-+]?(?:\d+|[1-9]\d{0,2}(?:[. '\u2019]\d{3})+))(?P<part>,\d*)?"),
}
_WITH_EXPONENT = re.compile(r"[-+]?\d+(?:,\d*)?[Ee][-+]?\d+")
"""A number with an exponent and a decimal comma; pandas itself reads those with a point."""
_LOSS = re.compile(r"\((\s?[\d.][^()]*)\)")
"""A negative amount in parentheses, as accountants write it."""
# The codes of currencies are listed, since the letters in "LOT 5" mean something else.
_UNIT = re.compile(
    r"[$€£¥₹₽₩₺₪₫฿₴₦%]|\b(?:AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|INR|JPY|KRW|MXN|NOK|NZD|PLN|"
    r"RUB|SEK|SGD|TRY|USD|ZAR)\b"
)
_UNIT_BEHIND = re.compile(r"[$€£¥]?\s?[-+]?\d[\d.,]*\s?([^\W\d_]\S*|[°\"'\u2032\u2033\u2030])?")
"""A number, followed by a unit or by nothing."""
_SCALES = frozenset(("", "k", "K", "m", "M", "B", "bn", "T"))
"""Thousands, millions and so on, as written after numbers."""


def are_instances(cells: pd.Series, kinds: type | tuple[type, ...]) -> BoolArray:
    """Which cells are instances of a type, or of one of several."""
    return np.array([isinstance(value, kinds) for value in cells], dtype=bool)


def are_placeholders(cells: pd.Series) -> BoolArray:
    """Which cells are text that stands for a missing number or date."""
    return np.array([isinstance(v, str) and v.strip().lower() in PLACEHOLDERS for v in cells], bool)


def written_number(text: str, decimal: str) -> float:
    """The number that text such as "$1,200.50", "-3 000 EUR", "(7.5)" or "5 %" means; NaN if none.

    A number in parentheses is negative, and thousands may be separated as in India, "1,23,456".
    The decimal sign is "." or ",". With a comma the number may have an exponent.
    """
    bare = _UNIT.sub("", text.strip(), count=1)
    if _LETTER.search(bare):  # a quick answer for most texts that are not numbers
        is_one = decimal == "," and _WITH_EXPONENT.fullmatch(bare)
        return float(bare.replace(",", ".")) if is_one else float("nan")
    # No-break spaces may separate thousands and currencies.
    bare = re.sub("[\u2012\u2013\u2212]", "-", re.sub(r"\s", " ", bare).strip())
    if losses := _LOSS.fullmatch(bare):
        bare = "-" + losses[1].strip()
    match = _NUMBER[decimal].fullmatch(re.sub("^([-+]) ", r"\1", bare))
    if match is None:
        return float("nan")
    number = float(re.sub(r"[^-+\d]", "", match["whole"]) + "." + (match["part"] or "")[1:])
    return number / 100 if "%" in text else number


def unit_of(text: str) -> str:
    """The currency or percent sign of a written number; empty if there is none."""
    match = _UNIT.search(text)
    return match.group() if match else ""


def units_behind(texts: pd.Series) -> list[str]:
    """The unit that follows the number in all texts, such as "kg" in "5.2 kg".

    It may be several scales, as in "1.5k" and "2M". Empty if units differ or a text is not a number
    with a unit.
    """
    units = set[str]()
    for text in texts:
        match = _UNIT_BEHIND.fullmatch(text.strip())
        if match is None:
            return []
        units.add(match[1] or "")
    is_one = len(units) == 1 or units <= _SCALES
    return sorted(units - {""}) if is_one else []


def date_format(texts: pd.Series) -> str | None:
    """The format in which pandas reads all texts as dates or times of day, or None.

    If both orders are possible, the month comes first; in dates with points it is the day, as in
    Europe. There must be at least one text.
    """
    formats = _formats(str(texts.iloc[0]))
    return next((each for each in formats if read_dates(texts, each).notna().all()), None)


def short_year_format(texts: pd.Series) -> str | None:
    """The first format with a year of two digits in which all texts are dates, or None.

    There must be at least one text.
    """
    # Most columns hold no dates; the digits of one cell show it in less time than pandas.
    if len(re.findall(r"\d+", texts.iloc[0])) < 2:
        return None
    formats = [each for each in _SHORT_YEARS if read_dates(texts[:1], each).notna().all()]
    return next((each for each in formats if read_dates(texts, each).notna().all()), None)


def dates_among(cells: pd.Series) -> BoolArray:
    """Which cells are dates: objects, or text in a format of the first cell or the middle one.

    There must be at least one cell.
    """
    are_dates = are_instances(cells, date)
    texts = cells.astype(object).where(are_instances(cells, str))
    for example in {texts.iloc[0], texts.iloc[len(texts) // 2]}:
        for text_format in _formats(example) if isinstance(example, str) else ():
            are_dates |= read_dates(texts, text_format).notna().to_numpy()
    return are_dates


def _formats(text: str) -> tuple[str, ...]:
    """Formats in which a text may be a date or a time of day; none if it cannot be either."""
    if len(re.findall(r"\d+", text)) < 2:  # names of months or weekdays alone are categories
        return ()
    half = _HALF_OF_DAY.search(text)  # pandas does not guess formats with AM or PM
    bare = text if half is None else text[: half.start()]
    day_first = _WITH_POINTS.match(bare) is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the order is another: both are tried
        orders = (day_first, not day_first)
        guesses = [guess_datetime_format(bare, dayfirst=order) for order in orders]
    # A date has a year and a day; "3-5" is more likely a range.
    dates = [guess for guess in guesses if guess and "%Y" in guess.upper() and "%d" in guess]
    if half is not None:
        dates = [guess.replace("%H", "%I") + half[1] + "%p" for guess in dates if "%H" in guess]
    return (ISO, *dates, _OF_DATABASES, *TIMES)


def read_dates(cells: pd.Series, text_format: str) -> pd.Series:
    """Time stamps in UTC; NaT where a cell does not have this format."""
    times = pd.to_datetime(cells, format=text_format, utc=True, errors="coerce").dt.as_unit("us")
    return times.fillna(read_dates(cells, TIMES[-2])) if text_format == TIMES[-1] else times
