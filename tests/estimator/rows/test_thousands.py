"""Points between thousands in files of text, as in Germany."""

import warnings

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.estimator.columns.numeric import values_of
from tabicl_linear.estimator.columns.reading import read_as
from tabicl_linear.estimator.rows.table_file import TableFile
from tabicl_linear.estimator.rows.text_cells import TextFormat


def write(folder, sep, **columns):
    lines = [sep.join(columns), *map(sep.join, zip(*columns.values(), strict=True))]
    path = folder / "t.csv"
    path.write_text("\n".join([*lines, ""]))
    return TableFile(path, TextFormat(sep))


THOUSANDS = ["1.234", "999", "-12.500", "NA"]
COMMAS = ["0,5", "1.234,25", "7", "-2,125"]
WHOLE = ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("sep", "columns"),
    [
        (";", {"a": THOUSANDS}),
        (";", {"a": THOUSANDS, "b": WHOLE}),
        (";", {"a": THOUSANDS, "b": COMMAS}),
        ("\t", {"a": THOUSANDS, "b": COMMAS, "c": ["x"] * 4}),
        (";", {"a": THOUSANDS, "b": COMMAS, "c": ["0.5"] * 4}),  # some column is wrong
    ],
)
def test_points_that_may_stand_between_thousands_are_told_of(tmp_path, sep, columns):
    file = write(tmp_path, sep, **columns)
    said = r"t\.csv: points are read as decimal signs, .* in columns 'a' \(1\.234\)\. If they do"
    for read in (file.frame, file.texts):
        with pytest.warns(UserWarning, match=said) as told:
            read()
        assert len(told) == 1
    with pytest.warns(UserWarning, match=said):
        frame = file.frame()
    np.testing.assert_array_equal(frame["a"], [1.234, 999, -12.5, np.nan])


@pytest.mark.parametrize(
    ("sep", "columns"),
    [
        (",", {"a": THOUSANDS}),
        ("\t", {"a": THOUSANDS}),
        (";", {"a": THOUSANDS, "b": ["0.5", "1", "2", "3"]}),  # its points are decimal signs
        (";", {"a": THOUSANDS, "b": ["1.25", "1", "2", "3"]}),
        (";", {"a": ["1.234", "0.999", "7", "8"], "b": COMMAS}),
        (";", {"a": ["1.234", "1000", "7", "8"], "b": COMMAS}),
        (";", {"a": ["1.234", "1.23", "7", "8"], "b": COMMAS}),
        (";", {"a": ["1.234", "12.3450", "7", "8"], "b": COMMAS}),
        (";", {"a": WHOLE, "b": COMMAS}),
        (",", {"a": THOUSANDS, "b": ['"1,234"', '"5"', '"1,234,567"', '"8"']}),
    ],
)
def test_other_points_are_not(tmp_path, sep, columns):
    file = write(tmp_path, sep, **columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file.frame()
        file.texts()


def test_a_column_that_shows_its_notation_is_read_in_it(tmp_path):
    """Beside 1.234,5 the text 1.234 is more than a thousand, in whatever order they come."""
    file = write(tmp_path, ";", a=["1.234", "1.234,5", "999", "1.234.567"])
    cells = file.frame()["a"]
    for order in (cells, cells[::-1]):
        values = values_of(order, read_as(order).text_format, None)
        assert sorted(values) == [999, 1234, 1234.5, 1234567]


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (["999", "1.234"], "'1.234' as the number 1.234, not 1234"),
        (["1.234", "0.999"], ""),
        (["1.234", "2.5"], ""),
        (["1", "2"], ""),
        (["1.234", "1234.5"], ""),
    ],
)
def test_text_that_may_be_either_number_is_told_of(texts, note):
    reading = read_as(pd.Series(texts))
    assert reading.note == note
    assert values_of(pd.Series(texts), reading.text_format, None).tolist() == list(
        map(float, texts)
    )
