"""Dates with a zone beside dates without."""

import datetime
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.time_zones import differ_in_zone

ZONE = datetime.timezone(datetime.timedelta(hours=2))
NAIVE, ZONED = pd.Timestamp("2024-05-06 12:30"), pd.Timestamp("2024-05-07 12:30", tz=ZONE)
WITH_ZONE = [
    *("2024-05-06 12:30+02:00", "2024-05-06T12:30:15.25Z", "2024-05-06 12:30:00 +0200"),
    *("2024-05-06T12+02", "20240506T1230Z", "2024-05-06 12:30 UTC", "05/06/2024 01:30 PM -05"),
    *(ZONED, ZONED.to_pydatetime()),
]
WITHOUT = [
    *("2024-05-06", "2024-05-06 12:30", "2024-05-06T12:30:15.25", "20240506", "20240506T1230"),
    *("06.05.2024 12:30", "31-JAN-24", "2024-05", "05/06/2024 01:30 PM"),
    *(NAIVE, NAIVE.to_pydatetime(), NAIVE.date(), NAIVE.to_numpy()),
]


SAID = (
    "Some dates have a time zone and others have none in columns 'when': those without count as "
    "UTC. Give all of a column their zone, or none."
)


@contextmanager
def zones_told():
    """What is said of zones; the list is filled at the end."""
    told = []
    with warnings.catch_warnings(record=True) as every:
        warnings.simplefilter("always")
        yield told
    told += [str(each.message) for each in every if "zone" in str(each.message)]


def test_what_has_a_zone():
    for zoned in WITH_ZONE:
        assert not differ_in_zone(pd.Series([zoned, *WITH_ZONE], dtype=object))
        for naive in WITHOUT:
            for both in ([zoned, naive], [naive, naive, zoned, zoned]):
                assert differ_in_zone(pd.Series(both, dtype=object))
    for naive in WITHOUT:
        assert not differ_in_zone(pd.Series([naive, *WITHOUT], dtype=object))
    for dates in (pd.Series([NAIVE] * 2), pd.Series([ZONED] * 2)):
        assert not differ_in_zone(dates)


@pytest.mark.parametrize(
    "cells",
    [
        [NAIVE, ZONED, None],
        ["2024-05-06 12:30", "2024-05-07 12:30+02:00", "?"],
        ["2024-05-06", ZONED, None],
    ],
)
@pytest.mark.parametrize("dtype", ["object", "category"])
def test_a_column_of_both_is_told_of_once_and_counts_as_utc(cells, dtype):
    table = pd.DataFrame({"when": pd.Series(cells, dtype=object)})
    other = pd.DataFrame({"when": pd.Series(pd.to_datetime(cells[:2], utc=True, format="mixed"))})
    with zones_told() as told:
        columns = TablePreprocessor().fit(table)
    assert told == [SAID]
    with zones_told() as told:
        matrix = columns.transform(table.astype(dtype))
    assert told == [SAID]
    with zones_told() as told:
        np.testing.assert_array_equal(matrix[:2], columns.transform(other))
    assert told == []
