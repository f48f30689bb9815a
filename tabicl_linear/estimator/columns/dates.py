"""The parts of dates and times that a learner sees as numbers."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

Part: TypeAlias = Literal["days", "year", "month", "weekday", "hour"]

_EPOCH = np.datetime64(0, "us")
_DAY = np.timedelta64(1, "D")
_READERS: dict[Part, Callable[[pd.Series], pd.Series]] = {
    "days": lambda stamps: (stamps - _EPOCH) / _DAY,
    "year": lambda stamps: stamps.dt.year,
    "month": lambda stamps: stamps.dt.month,
    "weekday": lambda stamps: stamps.dt.day_of_week,
    "hour": lambda stamps: stamps.dt.hour + stamps.dt.minute / 60,
}
PARTS = tuple(_READERS)


def date_part(stamps: pd.Series, part: Part) -> npt.NDArray[np.float64]:
    """A part of time stamps as float64; NaN where missing.

    Args:
        stamps: Time stamps without zone, in UTC.
        part: Days since 1970, year, month (1 to 12), weekday (0 for Monday), or hour of the day
            with its minutes as a fraction.
    """
    return _READERS[part](stamps).to_numpy(dtype=np.float64, na_value=np.nan)
