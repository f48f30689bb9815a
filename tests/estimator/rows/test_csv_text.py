import pytest

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows import csv_text


def test_names_are_those_of_pandas():
    assert csv_text.header("t.csv", ["\n", "a,,b\n", "1,2,3\n"]) == ["a", "Unnamed: 1", "b"]
    assert csv_text.header("t.csv", ['"a;b";c\n'], sep=";") == ["a;b", "c"]
    assert csv_text.header("t.csv", []) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,a\n"], "t.csv: column name 'a' occurs more than once; rename it."),
        (["a\n", "1,2\n"], "t.csv: line 2 has 2 fields and the header 1; put quotes"),
    ],
)
def test_headers_that_do_not_fit(lines, message):
    with pytest.raises(DataError, match=message):
        csv_text.header("t.csv", lines)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("C error: Expected 5 fields in line 8, saw 6\n", "line 8 has 6 fields and the header 5"),
        ("C error: EOF inside string starting at row 4", "row 4\\); close the quote that is open"),
        ("line contains NUL", "NUL\\); mend that line"),
    ],
)
def test_faults_say_what_to_do(reason, message):
    fault = csv_text.fault("t.csv", ValueError(reason))
    with pytest.raises(DataError, match=message):
        raise fault
