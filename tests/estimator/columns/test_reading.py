import datetime
import warnings

import pandas as pd
import pyarrow as pa
import pytest

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.reading import read_as


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (pd.Series(pd.to_timedelta([1, 2], unit="D")), "holds durations"),
        (pd.Series([datetime.timedelta(1), None], dtype=object), "holds durations"),
        (pd.Series(pd.period_range("2024", periods=2, freq="M")), "holds period"),
        (pd.Series([1 + 2j, 2.0]), "holds complex128"),
    ],
)
def test_what_cannot_be_read_is_refused(cells, message):
    with pytest.raises(DataError, match=message):
        read_as(cells)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([1, 2, 3, "x"], "numbers"),
        (["1", "2", "3", "x"], "numbers"),
        (["x", "y", 7], "numbers"),
        ([1, {"a": 1}, 2], "numbers"),
        (["$1,200", "$30", "on request"], "numbers"),
        (["$5", "€7", "9"], r"numbers in several units or notations, such as '\$5', '€7', '9'"),
        (["€5,50", "$7,25"], "numbers in several units"),
        (["10%", "20%", "0.1"], r"numbers in .*, such as '20%', '0\.1'"),
        (["1,5", "2.5"], "numbers in"),
        (["1,5", "2,5", "on request"], "numbers with other values such as 'on request'"),
        (["13/02/2024", "02/13/2024", "?"], "dates in .*, such as '13/02/2024', '02/13/2024'"),
        (["1/2/2024", "13/2/2024 9:30"], "dates in several formats"),
        ([pd.Timestamp(0), "12:30"], "dates in several formats"),
        (["0000-00-00", "2024-01-01", "2024-01-02"], "dates"),
        (["1/31/2024", "2/1/2024", "soon"], "dates"),
        ([pd.Timestamp(0), "x", "y"], "dates"),
        ([True, "x", None], "booleans"),
        ([True, "x", 7], "numbers"),
    ],
)
def test_mixed_types_are_categories_with_a_warning(values, what):
    cells = pd.Series(values, dtype=object, name="a")
    with pytest.warns(UserWarning, match=f"Column 'a' mixes {what}"):
        assert read_as(cells).kind == "categorical"


@pytest.mark.parametrize(
    ("values", "text_format"),
    [
        (["01/02/24", "12/31/99", "?"], "%m/%d/%y"),
        (["01/02/24", "31/12/99"], "%d/%m/%y"),
        (["31.12.24", "1.2.99"], "%d.%m.%y"),
        (["24-12-31", "99-01-02"], "%y-%m-%d"),
    ],
)
def test_years_of_two_digits_are_told_of(values, text_format):
    with pytest.warns(UserWarning, match=f"Column 'a' .*years in full.*{text_format!r}"):
        assert read_as(pd.Series(values, name="a")).kind == "categorical"


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b", "7"],
        ["555-1234", "555-1235"],
        ["1/2/24", "a"],
        ["1-2", "13-13-24"],
        ["1,,2"],
    ],
)
def test_text_with_some_digits_is_no_reason_to_warn(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_as(pd.Series(values)).kind == "categorical"


@pytest.mark.parametrize(
    ("values", "dtype", "kind"),
    [
        ([1, 2], "int64", "numeric"),
        ([1, 2], "category", "categorical"),
        (["1", "2"], "category", "categorical"),
        (["1", "2"], "str", "numeric"),
        (["1", None], "string[pyarrow]", "numeric"),
        (["1", "x"], pd.ArrowDtype(pa.string()), "categorical"),
        (["1", "2"], pd.ArrowDtype(pa.string()), "numeric"),
        ([True, None], "bool[pyarrow]", "boolean"),
        ([True, None], "object", "boolean"),
        (["2024-01-01", None], "datetime64[ns]", "datetime"),
        (["2024-01-01", None], "timestamp[us][pyarrow]", "datetime"),
        (["2024-01-01", None], "object", "datetime"),
        (["2024-01-01", "?"], "str", "datetime"),
        (["12:30", "7:15"], "str", "datetime"),
        (["01/02/2024", "13/02/2024"], "str", "datetime"),
        (["01/02/2024 3:05 PM", "13/02/2024 12:00 AM"], "str", "datetime"),
        (["01/02/2024", "13/13/2024"], "str", "categorical"),
        (["10-20", "20-30"], "str", "categorical"),
        (["1.2.3", "4.5.6"], "str", "categorical"),
        (["May", "June"], "str", "categorical"),
        (["1", "?"], "str", "numeric"),
        ([1, "?", " "], "object", "numeric"),
        (["?", "-"], "str", "categorical"),
        (["a", "?"], "str", "categorical"),
        (["$5", "7"], "str", "numeric"),
        (["5 %", 0.07], "object", "numeric"),
        (["LOT 5", "LOT 6"], "str", "categorical"),
        (["1,5", "2,25"], "str", "numeric"),
        ([None, None], "object", "categorical"),
    ],
)
def test_kinds(values, dtype, kind):
    assert read_as(pd.Series(values, dtype=dtype)).kind == kind


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (["$1,200", "$30"], "'$1,200' as the number 1200, not 1.2"),
        (["$30", "$1,200.5"], "'$30' as numbers"),
        (["1", "?", "2"], "'?' as missing"),
        (["5 %", "?"], "'5 %' as numbers, '?' as missing"),
        (["2/1/2024"] * 2, "'2/1/2024' as dates (%m/%d/%Y)"),
        (["01.02.2024", "01.03.2024"], "'01.02.2024' as dates (%d.%m.%Y)"),
        (["1.2.2024 9:30", "1.3.2024 9:30"], "'1.2.2024 9:30' as dates (%d.%m.%Y %H:%M)"),
        (["01.02.2024", "01.13.2024"], "'01.02.2024' as dates (%m.%d.%Y)"),
        (["1,5e-05", "0,25"], "'1,5e-05' as numbers"),
        (["1", "2"], ""),
        ([1.5, None], ""),
        (["a", "?"], ""),
    ],
)
def test_what_text_is_read_as_is_told(values, note):
    assert read_as(pd.Series(values)).note == note


def test_free_text_is_refused_with_the_remedy():
    reviews = pd.Series(
        [f"I bought number {i} and it broke at once, alas" for i in range(30)], name="a"
    )
    with pytest.raises(DataError, match=r"'a' holds free text \(30 different .*drop it.*Tfidf"):
        read_as(reviews)
    assert read_as(reviews.astype("category")).kind == "categorical"


@pytest.mark.parametrize(
    "values",
    [
        [f"number {i}" for i in range(100)],
        ["a long description of one of the three products", "another such description of one"] * 50,
        [f"the text is long but there are only {i}" for i in range(10)],
    ],
    ids=["short", "repeated", "few"],
)
def test_text_that_names_something_is_categories(values):
    assert read_as(pd.Series(values)).kind == "categorical"
