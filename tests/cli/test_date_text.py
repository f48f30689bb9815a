"""Columns of dates that are written as text."""

import pandas as pd
import pytest

from tabicl_linear.cli.date_text import read_dates_of
from tabicl_linear.errors import DataError


def test_dates():
    (read,) = read_dates_of(
        [("t.csv", pd.Series(["2024-12-31", None, "2024-12-31T12:00", "?"]))], "when"
    )
    assert (read.iloc[2] - read.iloc[0]) == pd.Timedelta(hours=12)
    assert read.isna().tolist() == [False, True, False, True]
    with pytest.warns(UserWarning, match="'31 Dec 2024' is read in the format %d %b %Y"):
        (read,) = read_dates_of([("t.csv", pd.Series(["31 Dec 2024"]))], "when")
    assert read[0] == pd.Timestamp(2024, 12, 31)
    (read,) = read_dates_of([("t.csv", pd.Series([20241231]))], "when")
    assert read[0] == pd.Timestamp(2024, 12, 31)
    assert read_dates_of([("t.csv", pd.Series([None, "?"]))], "when")[0].isna().all()


def test_dates_have_one_format_in_both_files():
    """Read one by one, the first would be the second of January."""
    train, test = pd.Series(["01/02/2024", "05/03/2024"]), pd.Series(["13/02/2024"])
    with pytest.warns(UserWarning, match="in the format %d/%m/%Y"):
        read = read_dates_of([("a.csv", train), ("b.csv", test)], "when")
    assert read[0].tolist() == [pd.Timestamp(2024, 2, 1), pd.Timestamp(2024, 3, 5)]
    assert read[1].tolist() == [pd.Timestamp(2024, 2, 13)]


def test_zones_in_one_of_both_files_are_told_of():
    train, test = pd.Series(["2024-01-02 10:00+02:00"]), pd.Series(["2024-01-02 10:00"])
    with pytest.warns(UserWarning, match="--dates when: some dates have a time zone and others"):
        (zoned,), (naive,) = read_dates_of([("a.csv", train), ("b.csv", test)], "when")
    assert naive - zoned == pd.Timedelta(hours=2)


def test_several_formats_that_leave_no_doubt():
    texts = pd.Series(["2024-01-02 10:00", "Jan 2, 2024", "01/31/2024"])
    (read,) = read_dates_of([("t.csv", texts)], "when")
    assert read.dt.normalize().tolist() == [
        *[pd.Timestamp(2024, 1, 2)] * 2,
        pd.Timestamp(2024, 1, 31),
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["2024-12-31", "soon"], "'soon' in row 2 is no date; write dates as 2024-12-31"),
        (["2024-12-31", "Jan 2, 2024", "01/02/2024"], "'01/02/2024' in row 3 may be one of two"),
        (["31.12.2024", "12.31.2024", "01.02.2024"], "'01.02.2024' in row 3 may be one of two"),
    ],
)
def test_text_that_is_no_date(texts, message):
    with pytest.raises(DataError, match=rf"t\.csv: --dates when: {message}"):
        read_dates_of([("t.csv", pd.Series(texts))], "when")
