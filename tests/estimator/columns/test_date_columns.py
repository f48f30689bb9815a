"""Columns of dates: days, and the parts of a date that vary."""

import datetime

import numpy as np
import pandas as pd
import pytest
from estimator.columns.test_encodings import NAN, OBJECT, fit_all, fit_column

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.numeric import MissingColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02", None, "2024-01-05"])),
        pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02", None, "2024-01-05"], utc=True)),
        pd.Series([datetime.date(2024, 1, d) if d else None for d in (1, 2, 0, 5)], **OBJECT),
    ],
    ids=lambda cells: str(cells.dtype),
)
def test_dates_are_days(cells):
    column = fit_column(cells, "when", 0)
    assert column.kind == "datetime"
    days = np.array([1.0, 2.0, 5.0])
    scores = (days - days.mean()) / days.std()
    expected = [*scores[:2], NAN, scores[2]]
    np.testing.assert_allclose(column.encode(cells), expected, atol=1e-9)
    with pytest.raises(DataError, match=r"'when' held dates .* holds no dates"):
        column.encode(pd.Series([1.5], name="when"))


def test_dates_become_the_parts_that_vary():
    times = ["2024-01-01 06:30", "2024-03-02 06:30", None, "2024-03-09 00:00"]
    cells = pd.Series(pd.to_datetime(times))
    columns = fit_all(cells, "when")
    assert [column.part for column in columns[:-1]] == ["days", "month", "weekday", "hour"]
    assert isinstance(columns[-1], MissingColumn)
    expected = {"month": [1, 3, 3], "weekday": [0, 5, 5], "hour": [6.5, 6.5, 0]}
    for column in columns[1:-1]:
        scores = column.encode(cells)[[0, 1, 3]]
        values = np.array(expected[column.part])
        np.testing.assert_allclose(scores, (values - values.mean()) / values.std(), atol=1e-9)
    years = fit_all(pd.Series(pd.to_datetime(["2020-05-04", "2025-05-05"])), "when")
    assert [column.part for column in years] == ["days", "year"]


def test_dates_as_text_are_the_dates_at_fit_and_at_prediction():
    dates = pd.Series(pd.to_datetime(["2024-01-31", "2024-02-29", "2021-07-05"]))
    for text_format in ("%Y-%m-%d", "%m/%d/%Y", "%d.%m.%Y", "%d %b %Y", "%d-%b-%y"):
        texts = dates.dt.strftime(text_format)
        columns = fit_all(texts, "when")
        assert [column.part for column in columns] == ["days", "year", "month", "weekday"]
        for column, same in zip(columns, fit_all(dates, "when"), strict=True):
            np.testing.assert_array_equal(column.encode(texts), same.encode(dates))
            np.testing.assert_array_equal(column.encode(dates), same.encode(dates))
        np.testing.assert_array_equal(columns[0].encode(pd.Series(["", "NaT"])), [NAN, NAN])
        gaps = fit_all(pd.concat([texts, pd.Series(["NaT"])]), "when")
        assert [column.part for column in gaps[:-1]] == ["days", "year", "month", "weekday"]
        with pytest.raises(DataError, match=r"'when' held dates .* \('soon'\); give dates"):
            columns[0].encode(pd.Series([texts[0], "soon"], name="when"))
        # As pieces of a table and spreadsheets mix them, with what stands for a missing one.
        both = pd.Series([dates[0], *texts[1:2], dates[2].date(), "?"], dtype=object)
        for column, same in zip(fit_all(both, "when")[:4], columns, strict=True):
            np.testing.assert_array_equal(column.encode(both)[:3], same.encode(dates))
        with pytest.raises(DataError, match=r"'when' held dates .* \(7\); give dates"):
            columns[0].encode(pd.Series([dates[0], texts[0], 7], name="when"))


def of_every_type(days):
    """Days as what tables hold: with and without zone, as objects, categories and text."""
    utc, absent = days.dt.tz_localize("UTC"), days.isna()
    plain = [days, utc, utc.dt.tz_convert("Asia/Tokyo"), utc.dt.tz_convert("America/Lima")]
    objects = [days.astype(object), days.dt.date.astype(object), days.dt.strftime("%Y-%m-%d")]
    objects.append(pd.Series(list(days.to_numpy()), dtype=object))
    cells = [*plain, *(each.where(~absent, None) for each in objects)]
    return [*cells, *(each.astype("category") for each in cells)]


def test_dates_declared_as_categories_are_those_of_any_type_and_may_be_new():
    days = pd.Series(pd.to_datetime(["2024-01-02", None, "2024-01-01"]))
    others = pd.Series(pd.to_datetime(["2024-01-01", "2025-06-07", None]))
    for given in of_every_type(days):
        (column,) = fit_all(given, "when", declared_categorical=True)
        for same in of_every_type(days):
            assert column.encode(same).tolist() == [1, 2, 0]
        for new in of_every_type(others):
            assert column.encode(new).tolist() == [0, -1, 2]
        with pytest.raises(DataError, match=r"'when' held categories .* holds numbers"):
            column.encode(pd.Series([1.5]))


def test_dates_as_categories_are_the_dates_at_prediction():
    days = pd.Series(pd.to_datetime(["2024-01-31", None, "2021-07-05"]))
    columns = fit_all(days, "when", labels=np.array([0, 1, 0]))
    assert isinstance(columns[-1], MissingColumn)
    for cells in of_every_type(days):
        for column in columns:
            np.testing.assert_array_equal(column.encode(cells), column.encode(days))
    with pytest.raises(DataError, match=r"'when' held dates .* holds no dates here \(1\)"):
        columns[0].encode(pd.Series([1, None], dtype="category", name="when"))


TIMES = [datetime.time(6, 30), None, datetime.time(12, 0, 5), datetime.time(18, 45, 1, 500_000)]


@pytest.mark.parametrize("fraction", [True, False])
def test_times_of_day_are_the_same_as_text(fraction):
    times = pd.Series(TIMES if fraction else TIMES[:3], **OBJECT)
    texts = times.map(lambda time: None if time is None else time.isoformat())
    columns = fit_all(times, "when")
    hours = np.array([6.5, 12, 18.75] if fraction else [6.5, 12])
    assert [column.part for column in columns[:-1]] == ["days", "hour"]
    expected = (hours - hours.mean()) / hours.std()
    np.testing.assert_allclose(columns[1].encode(times)[times.notna()], expected, atol=1e-9)
    for column, same in zip(columns, fit_all(texts, "when"), strict=True):
        for cells in (times, texts):
            np.testing.assert_array_equal(column.encode(cells), same.encode(cells))


def test_times_of_day_with_a_time_zone_are_refused_with_the_remedy():
    column = fit_column(pd.Series(TIMES, name="when"), "when", 0)
    zoned = pd.Series([datetime.time(6, 30), datetime.time(7, tzinfo=datetime.UTC)], name="when")
    message = r"'when' holds times of day with a time zone \(07:00:00\+00:00\); .*replace"
    for read in (column.encode, lambda cells: fit_all(cells, "when")):
        with pytest.raises(DataError, match=message):
            read(zoned)


def test_a_table_of_times_of_day_has_what_its_columns_say():
    table = pd.DataFrame({"when": TIMES})
    columns = TablePreprocessor().fit(table)
    expected = [column.encode(table["when"]).astype(np.float32) for column in columns.used]
    np.testing.assert_array_equal(columns.transform(table), np.stack(expected, axis=1))


@pytest.mark.parametrize("text_format", ["%m/%d/%Y %I:%M:%S %p", "%Y-%m-%d %I:%M%p", "%I:%M %p"])
def test_the_day_may_have_two_times_twelve_hours(text_format):
    times = pd.Series(pd.to_datetime(["2024-01-31 00:05", "2024-02-29 12:30", "2024-07-05 18:45"]))
    columns = {column.part: column for column in fit_all(times.dt.strftime(text_format), "when")}
    hours = np.array([5 / 60, 12.5, 18.75])
    scores = columns["hour"].encode(times.dt.strftime(text_format))
    np.testing.assert_allclose(scores, (hours - hours.mean()) / hours.std(), atol=1e-9)


def test_times_of_day_are_no_dates():
    dates = pd.Series(pd.to_datetime(["2024-01-01", "2024-02-02"]), name="when")
    times = pd.Series(TIMES, name="when")
    with pytest.raises(DataError, match=r"'when' held dates .* \(datetime.time\(6, 30\)\)"):
        fit_column(dates, "when", 0).encode(times)
    column = fit_column(times, "when", 0)
    with pytest.raises(
        DataError, match=r"'when' held times of day .* holds dates here \(2024-01-01"
    ):
        column.encode(dates)
    assert np.isnan(column.encode(dates.mask(dates.notna()))).all()
