"""What text in files stands for."""

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.cli.cell_text import (
    dates,
    numbers_with_marks,
    row_numbers,
    without_marks,
)
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.label_text import typed_labels
from tabicl_linear.estimator.rows.labels import checked_labels


@pytest.mark.parametrize("kind", ["object", "str"])
@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1", "?", " 2.5 ", " ", None], [1, np.nan, 2.5, np.nan, np.nan]),
        (["?", "1e3"], [np.nan, 1000]),
        (["?", "old"], None),
        (["?", " "], None),
        (["1", "2", "unknown"], None),
    ],
)
def test_marks_in_columns_of_numbers(kind, cells, numbers):
    column = pd.Series(cells, dtype=kind)
    read = numbers_with_marks(column)
    if numbers is None:
        assert read is column
    else:
        np.testing.assert_array_equal(read.to_numpy(np.float64), numbers)


def test_columns_that_are_no_text_stay():
    for column in (pd.Series([1, 2]), pd.Series([True, False]), pd.Series(["a"], dtype="category")):
        assert numbers_with_marks(column) is column
        assert without_marks(column) is column


def test_marks_of_rows_to_predict_are_missing_and_words_stay():
    assert without_marks(pd.Series(["?", " "])).isna().all()
    assert without_marks(pd.Series(["?", "7"])).tolist()[1] == 7
    assert without_marks(pd.Series(["?", "old"])).tolist()[1] == "old"


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["1", "-3", "0"], [1, -3, 0]),
        (["1.0", "2.50", ".5"], [1.0, 2.5, 0.5]),
        (["True", "False"], [True, False]),
        (["true", "FALSE"], [True, False]),
        (["007", "12"], ["007", "12"]),
        (["NA", "None", "yes"], ["NA", "None", "yes"]),
        (["NA", "None"], ["NA", "None"]),
        (["1", "b"], ["1", "b"]),
        (["9" * 400, "1"], ["9" * 400, "1"]),
        (["9" * 30, "1"], [1e30, 1.0]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_labels_have_the_type_that_they_are_written_in(texts, labels):
    typed = typed_labels(pd.Series(texts, dtype="str")).tolist()
    assert typed == labels
    assert {type(label) for label in typed} == {type(label) for label in labels}


def test_words_for_missing_values_among_numbers_are_missing():
    typed = typed_labels(pd.Series(["1", "NA", "2", None], dtype="str"))
    assert typed.isna().tolist() == [False, True, False, True]


def test_dates():
    (read,) = dates([("t.csv", pd.Series(["2024-12-31", None, "2024-12-31T12:00", "?"]))], "when")
    assert (read.iloc[2] - read.iloc[0]) == pd.Timedelta(hours=12)
    assert read.isna().tolist() == [False, True, False, True]
    with pytest.warns(UserWarning, match="'31 Dec 2024' is read in the format %d %b %Y"):
        (read,) = dates([("t.csv", pd.Series(["31 Dec 2024"]))], "when")
    assert read[0] == pd.Timestamp(2024, 12, 31)
    (read,) = dates([("t.csv", pd.Series([20241231]))], "when")
    assert read[0] == pd.Timestamp(2024, 12, 31)
    assert dates([("t.csv", pd.Series([None, "?"]))], "when")[0].isna().all()


def test_dates_have_one_format_in_both_files():
    """Read one by one, the first would be the second of January."""
    train, test = pd.Series(["01.02.2024", "05.03.2024"]), pd.Series(["13.02.2024"])
    with pytest.warns(UserWarning, match=r"in the format %d\.%m\.%Y"):
        read = dates([("a.csv", train), ("b.csv", test)], "when")
    assert read[0].tolist() == [pd.Timestamp(2024, 2, 1), pd.Timestamp(2024, 3, 5)]
    assert read[1].tolist() == [pd.Timestamp(2024, 2, 13)]


def test_several_formats_that_leave_no_doubt():
    texts = pd.Series(["2024-01-02 10:00", "Jan 2, 2024", "01/31/2024"])
    (read,) = dates([("t.csv", texts)], "when")
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
        dates([("t.csv", pd.Series(texts))], "when")


def test_columns_that_look_like_row_numbers():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "Unnamed: 0": rng.normal(size=40),
            "id": np.arange(7, 47),
            "count": rng.permutation(40),
            "time": np.arange(40.0),
            "steps": 2 * np.arange(40),
        }
    )
    assert row_numbers(table) == ["Unnamed: 0", "id"]
    assert row_numbers(table[:20]) == ["Unnamed: 0"]


@pytest.mark.parametrize("infinite", ["inf", "-Infinity", "+INF"])
def test_infinity_among_numbers_is_a_number_and_refused_as_in_parquet(infinite):
    typed = typed_labels(pd.Series(["1.0", infinite], dtype="str"))
    with pytest.raises(DataError, match="infinity"):
        checked_labels(typed)
    assert typed_labels(pd.Series(["low", infinite], dtype="str")).tolist() == ["low", infinite]
