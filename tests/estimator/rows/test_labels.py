import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.labelled import checked_rows
from tabicl_linear.estimator.rows.labels import checked_labels, class_codes, typed_labels
from tabicl_linear.estimator.rows.table_file import TableFile


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pd.Series([3, 1], dtype="Int8"), np.array([3, 1])),
        (pd.array([3, 1], dtype="UInt64"), np.array([3, 1], dtype=np.uint64)),
        (pd.Index([3, 1], dtype="Int64"), np.array([3, 1])),
        (pd.Series([3, 1], dtype="int64[pyarrow]"), np.array([3, 1])),
        (pd.Series([True, False], dtype="boolean"), np.array([True, False])),
        (pd.Series([True, False], dtype="bool[pyarrow]"), np.array([True, False])),
        (pd.Series([3, 1], dtype="category"), np.array([3, 1])),
        (pd.Series(["b", "a"], dtype=pd.ArrowDtype(pa.string())), np.array(["b", "a"], object)),
        ([np.int64(3), 1], np.array([3, 1])),
        (((3,), (1,)), np.array([3, 1])),
        (np.ma.array([2**60, 2**60 + 1]), np.array([2**60, 2**60 + 1])),
        (np.ma.array([True, False]), np.array([True, False])),
    ],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_labels_keep_their_type(labels, expected):
    np.testing.assert_array_equal(checked_labels(labels), expected, strict=True)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        # NumPy would make text of both.
        (["a", float("nan")], "1 of 2 labels are missing"),
        (["a", 1], "types int and str; make them one type"),
        (pd.Series([1, None], dtype="Int64"), "1 of 2 labels are missing"),
        ([decimal.Decimal(1), decimal.Decimal(2)], r"type Decimal, such as Decimal\('1'\); make"),
        ([10**30, 1], "type int, such as 1000.*; make them text"),
        (pd.Series(pd.period_range("2024", periods=2)), "type Period"),
        (np.array([1j, 2j]), r"Complex data not supported\. Give one class label"),
        (np.zeros((2, 2)), r"shape \(2, 2\)"),
        ([[1], [1, 2]], "inhomogeneous"),
    ],
)
def test_labels_that_cannot_be_used(labels, message):
    with pytest.raises(DataError, match=message) as refusal:
        checked_labels(labels)
    assert "\n" not in str(refusal.value)


def test_a_label_beside_many_classes_is_named_in_a_short_line():
    with pytest.raises(DataError, match=r"^y holds 7000, .* \[0, 1, 2, .*announce") as refusal:
        class_codes(np.array([7000]), np.arange(5000))
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(("labels", "classes"), [(["0", "1"], [0, 1]), ([0, 1], ["0", "1"])])
def test_labels_of_another_type_than_the_classes(labels, classes):
    """As pieces of a file of which only some hold words."""
    with pytest.raises(DataError, match=r"0.*: labels and classes are of different types; convert"):
        class_codes(np.array(labels), np.array(classes))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint64", "bool", "object"])
def test_codes_of_labels_of_any_type(dtype):
    classes, labels = np.array([0, 1]).astype(dtype), np.array([1, 0, 1]).astype(dtype)
    assert class_codes(labels, classes).tolist() == [1, 0, 1]
    with pytest.raises(DataError, match="not one of the classes"):
        class_codes(labels, classes[:1])


@pytest.mark.parametrize("dtype", [str, object], ids=["str", "object"])
def test_classes_that_differ_in_blanks_alone_are_told(dtype):
    labels = np.array(["no", "yes", "yes ", "maybe", " yes"] * 8, dtype=dtype)
    with pytest.warns(UserWarning, match=r"alone: ' yes' and 'yes' and 'yes '\. .*strip\(\)"):
        RandomFeatureRidge(n_estimators=1).fit(np.arange(40)[:, None], labels)


@pytest.mark.parametrize("wrap", [pd.Series, pd.DataFrame])
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_the_same_index_in_another_order_is_told(wrap):
    table, labels = pd.DataFrame({"x": range(4)}), wrap(["a", "b", "b", "b"])
    with pytest.warns(UserWarning, match=r"matched by position.*y\.loc\[X\.index\]"):
        rows = checked_rows(table, labels[::-1])
    assert rows.labels.tolist() == ["b", "b", "b", "a"]
    others = labels, labels[::-1].set_axis(range(4)), labels.set_axis([0, 0, 1, 2])
    for other in (*others, labels.set_axis([4, 3, 2, 1])):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            warnings.filterwarnings("ignore", "A column-vector y was passed")
            checked_rows(table, other)


def test_a_table_without_an_index_has_no_order_of_it():
    """As what a pipeline with `set_output(transform="polars")` passes on."""
    table, labels = pd.DataFrame({"x": range(4)}), pd.Series(["a", "b", "b", "b"])
    for other in (polars.from_pandas(table), pa.Table.from_pandas(table), table.to_numpy()):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            checked_rows(other, labels[::-1])


def test_dates_in_nanoseconds_are_named_as_dates():
    labels = np.array(["2024-01-31", "2024-02-29"], dtype="datetime64[ns]")
    with pytest.raises(
        DataError, match=r"2024-02-29 00:00.*classes \[Timestamp\('2024-01-31"
    ) as no:
        class_codes(labels, labels[:1])
    assert "00000000" not in str(no.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([decimal.Decimal(1), decimal.Decimal(2)], "type Decimal"),
        ([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], "type date"),
        ([b"a", b"b"], "holds bytes, such as b.a."),
        ([1.0, 0.25], "Labels such as 0.25 are not classes"),
    ],
)
def test_what_is_wrong_with_labels_of_a_file_names_their_column(tmp_path, labels, message):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"x": [1.0, 2.0] * 20, "grade": labels * 20}).to_parquet(path)
    message = f"Target column 'grade' of {path}: .*{message}"
    with pytest.raises(DataError, match=message):
        RandomFeatureRidge().fit(path, "grade")
    with pytest.raises(DataError, match=message):
        TableFile(path).labelled("grade")


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
        (["9" * 30, "1"], ["9" * 30, "1"]),  # as floats, several would be one
        ([str(2**63 - 1), "1"], [2**63 - 1, 1]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_labels_have_the_type_that_they_are_written_in(texts, labels):
    typed = typed_labels(pd.Series(texts, dtype="str")).tolist()
    assert typed == labels
    assert {type(label) for label in typed} == {type(label) for label in labels}


@pytest.mark.parametrize("number", ["1", "9" * 30])
def test_words_for_missing_values_among_numbers_are_missing(number):
    typed = typed_labels(pd.Series([number, "NA", "2", None], dtype="str"))
    assert typed.isna().tolist() == [False, True, False, True]


def test_floats_beyond_whole_numbers_are_no_labels():
    with pytest.raises(DataError, match=r"Labels such as 1e\+30 are not classes"):
        checked_labels(np.array([1.0, 1e30]))


@pytest.mark.parametrize("infinite", ["inf", "-Infinity", "+INF"])
def test_infinity_among_numbers_is_a_number_and_refused_as_in_parquet(infinite):
    typed = typed_labels(pd.Series(["1.0", infinite], dtype="str"))
    with pytest.raises(DataError, match="infinity"):
        checked_labels(typed)
    assert typed_labels(pd.Series(["low", infinite], dtype="str")).tolist() == ["low", infinite]
