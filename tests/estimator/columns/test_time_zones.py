"""Dates with a zone beside dates without."""

import datetime
import warnings
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.time_zones import have_zones

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
    "Some dates have a time zone and others, perhaps those of training, have none in columns "
    "'when': those without count as UTC. Give all of a column their zone, or none."
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
    assert have_zones(pd.Series(WITH_ZONE, dtype=object)) == {True}
    assert have_zones(pd.Series(WITHOUT, dtype=object)) == {False}
    for zoned, naive in product(WITH_ZONE, WITHOUT):
        for both in ([zoned, naive], [naive, naive, zoned, zoned]):
            assert have_zones(pd.Series(both, dtype=object)) == {True, False}
    for dtype in (None, "category"):
        assert have_zones(pd.Series([NAIVE] * 2, dtype=dtype)) == {False}
        assert have_zones(pd.Series([ZONED] * 2, dtype=dtype)) == {True}
        assert have_zones(pd.Series([ZONED] * 2, dtype=dtype)[:0]) == set()


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


@pytest.mark.parametrize("kind", [str, pd.Timestamp])
def test_zones_of_training_alone_or_of_prediction_alone_are_told_of(kind):
    naive = pd.Series([NAIVE, NAIVE + pd.Timedelta("1D")], name="when")
    zoned = naive.dt.tz_localize("Europe/Berlin")
    tables = [pd.DataFrame({"when": list(map(kind, dates))}) for dates in (naive, zoned)]
    for training, other in (tables, tables[::-1]):
        with zones_told() as told:
            columns = TablePreprocessor().fit(training)
            columns.transform(training)
            columns.transform(training.assign(when=None))
        assert told == []
        with zones_told() as told:
            columns.transform(other)
        assert told == [SAID]


def test_times_of_day_and_columns_of_earlier_files_say_nothing():
    table = pd.DataFrame({"when": ["12:30", "7:15"]})
    with zones_told() as told:
        TablePreprocessor().fit(table).transform(table)
    assert told == []
    naive = pd.DataFrame({"when": [NAIVE, NAIVE + pd.Timedelta("1D")]})
    columns = TablePreprocessor().fit(naive)
    assert {column.has_zone for column in columns.used} == {False}
    columns.columns = tuple(replace(column, has_zone=None) for column in columns.columns)
    with zones_told() as told:
        columns.transform(naive.apply(lambda dates: dates.dt.tz_localize("UTC")))
    assert told == []
