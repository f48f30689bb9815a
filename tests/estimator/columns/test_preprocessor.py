import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.numeric import MissingColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor

FRAME = pd.DataFrame(
    {
        "age": [20.0, 30.0, np.nan, 50.0],
        "same": [1, 1, 1, 1],
        "town": ["b", "a", "b", None],
        "member": pd.array([True, False, pd.NA, True], dtype="boolean"),
        "void": [None] * 4,
    }
)


def test_numeric_arrays_become_z_scores():
    table = np.random.default_rng(0).normal(1e9, 3, (200, 4))
    matrix = TablePreprocessor().fit(table).transform(table)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, StandardScaler().fit_transform(table), atol=1e-5)


def test_records_say_what_became_of_each_column():
    preprocessor = TablePreprocessor().fit(FRAME)
    kinds = [(column.name, type(column).__name__) for column in preprocessor.columns]
    assert kinds == [
        ("age", "NumericColumn"),
        ("age", "MissingColumn"),
        ("same", "DroppedColumn"),
        ("town", "CategoryColumn"),
        ("member", "CategoryColumn"),
        ("void", "DroppedColumn"),
    ]
    assert [column.name for column in preprocessor.used] == ["age", "age", "town", "member"]
    assert preprocessor.width == 5
    assert preprocessor.categorical.tolist() == [False, True, True, True]
    expected = [[0, 1, 1], [0, 0, 0], [1, 1, 2], [0, 2, 1]]
    np.testing.assert_array_equal(preprocessor.transform(FRAME)[:, 1:], expected)


def test_columns_that_are_missing_together_are_told_once():
    frame = FRAME[["age"]].assign(weight=FRAME["age"] ** 2, height=[1.0, np.nan, 3.0, 2.0])
    preprocessor = TablePreprocessor().fit(frame)
    missing = [c.name for c in preprocessor.columns if isinstance(c, MissingColumn)]
    assert missing == ["age", "height"]


def test_a_column_that_another_one_says_all_of_has_a_record():
    lacking = np.where([True, False, True, False], np.nan, 5.0)
    dates = pd.Series([pd.NaT, pd.Timestamp(0)] * 2)
    frame = pd.DataFrame({"a": lacking, "b": 2 * lacking, "c": range(4), "d": dates})
    preprocessor = TablePreprocessor().fit(frame)
    kinds = [(column.name, type(column).__name__) for column in preprocessor.columns]
    assert kinds == [
        ("a", "MissingColumn"),
        ("b", "DroppedColumn"),
        ("c", "NumericColumn"),
        ("d", "DroppedColumn"),
    ]
    assert [column.position for column in preprocessor.columns] == [0, 1, 2, 3]
    assert "missing in the same rows" in preprocessor.columns[1].reason
    assert [column.name for column in preprocessor.used] == ["a", "c"]
    np.testing.assert_array_equal(preprocessor.transform(frame)[:, 0], [1, 0, 1, 0])


def test_text_that_is_read_is_told_in_one_line():
    frame = pd.DataFrame({"price": ["$5", "$7"], "when": ["2024-01-01", "2025-01-01"], "n": [1, 2]})
    with pytest.warns(UserWarning, match="^Text is read") as told:
        TablePreprocessor().fit(frame)
    (line,) = told
    assert str(line.message) == (
        "Text is read in columns 'price' ('$5' as numbers), "
        "'when' ('2024-01-01' as dates (ISO8601))."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TablePreprocessor().fit(FRAME)


def test_queries_do_not_move_what_was_learnt():
    preprocessor = TablePreprocessor().fit(FRAME)
    alone = preprocessor.transform(FRAME.iloc[:1])
    np.testing.assert_array_equal(alone, preprocessor.transform(FRAME)[:1])


def test_columns_that_vary_in_later_rows_alone_are_told_of():
    """As one that a growing table has not had from the first day."""
    first = {"empty": [None] * 3, "same": [7] * 3, "also": ["a"] * 3, "number": [1, 2, 3]}
    columns, labels = TablePreprocessor().fit(pd.DataFrame(first)), np.array([0, 1, 1])
    late = {"empty": ["x", None, None], "same": [7, 8, 7], "also": ["b"] * 3}
    with pytest.warns(UserWarning, match=r"said nothing in columns 'empty', 'same' \(constant or"):
        columns.read(pd.DataFrame(first | late), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns.read(pd.DataFrame(first), labels)
        columns.transform(pd.DataFrame(first | late))


def test_columns_of_a_frame_are_matched_by_name():
    preprocessor = TablePreprocessor().fit(FRAME)
    shuffled = FRAME[["void", "town", "age", "member", "same"]]
    np.testing.assert_array_equal(preprocessor.transform(shuffled), preprocessor.transform(FRAME))


def test_columns_of_an_integer_labelled_frame_are_matched_by_label():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)))
    preprocessor = TablePreprocessor().fit(frame)
    np.testing.assert_array_equal(
        preprocessor.transform(frame[[2, 0, 1]]), preprocessor.transform(frame)
    )


@pytest.mark.parametrize("names", [[True, False], [("a", 1), ("a", 2)]], ids=str)
def test_names_of_columns_are_no_mask(names):
    frame = pd.DataFrame([[1, 2], [3, 5]]).set_axis(pd.Index(names), axis=1)
    preprocessor = TablePreprocessor().fit(frame)
    expected = preprocessor.transform(frame)
    np.testing.assert_array_equal(preprocessor.transform(frame.iloc[:, ::-1]), expected)


def test_other_columns_are_refused_with_their_names():
    preprocessor = TablePreprocessor().fit(FRAME)
    with pytest.raises(DataError, match="missing 'age'; unknown 'Age'"):
        preprocessor.transform(FRAME.rename(columns={"age": "Age"}))
    with pytest.raises(DataError, match="a name occurs twice"):
        preprocessor.transform(pd.concat([FRAME, FRAME[["age"]]], axis=1))


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(DataError, match="None of the 2 columns varies over the 4 training rows"):
        TablePreprocessor().fit(FRAME[["same", "void"]])


@pytest.mark.parametrize(
    "declared",
    [[0], {"age"}, [True, False, False], np.array([0]), np.array([True, False, False], object)],
    ids=str,
)
def test_declared_categorical_columns(declared):
    table = FRAME[["age", "town", "member"]]
    preprocessor = TablePreprocessor(declared).fit(table)
    assert preprocessor.categorical.tolist() == [True, True, True]
    np.testing.assert_array_equal(preprocessor.transform(table)[:, 0], [0, 1, 3, 2])


@pytest.mark.parametrize("declared", [[], np.array([], object), FRAME.columns[:0]], ids=repr)
def test_no_declared_column(declared):
    table = FRAME[["age", "town"]]
    assert not TablePreprocessor(declared).fit(table).categorical[0]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (["agee"], "'agee', which is not a column: give names"),
        ([5], "5, which is not a column"),
        ([-1], "-1, which is not a column"),
        ([True, False], r"mask of shape \(2,\) for 5 columns"),
        ("age", "categorical_features='age': give a list of names or positions"),
        (0, "categorical_features=0: give a list"),
        (iter(["age"]), "categorical_features=<list_iterator.*: give a list"),
        (["age", True], "True, which is not a column"),
        (np.array([True, None]), "True, which is not a column"),
    ],
)
def test_declared_columns_that_do_not_exist(declared, message):
    with pytest.raises(DataError, match=message):
        TablePreprocessor(declared).fit(FRAME)


def test_declared_numbers_that_differ_in_every_row():
    with pytest.warns(UserWarning, match="another one in each.*: leave it out of categorical_feat"):
        TablePreprocessor([0]).fit(np.arange(40.0).reshape(20, 2))


def test_names_declared_for_an_array():
    with pytest.raises(DataError, match="give positions from 0 to 1"):
        TablePreprocessor(["age"]).fit(np.eye(2))


@pytest.mark.parametrize("dtype", [object, str], ids=["object", "str"])
def test_arrays_of_objects_and_of_text(dtype):
    table = np.array([[1.5, "a"], [np.nan, "b"], [2.5, "a"]], dtype=object).astype(dtype)
    matrix = TablePreprocessor().fit(table).transform(table)
    np.testing.assert_array_equal(matrix, [[-1, 0, 0], [np.nan, 1, 1], [1, 0, 0]])


def test_messages_about_an_array_name_the_columns_of_the_training_table():
    columns = TablePreprocessor().fit(pd.DataFrame({"age": [1, 2], "size": [3.0, 4.0]}))
    with pytest.raises(DataError, match=r"^Column 'size' held numbers .* holds 'tall' here"):
        columns.transform(np.array([[1, "tall"]], dtype=object))


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=3),
    st.datetimes(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.complex_numbers(),
    st.sampled_from([pd.NA, pd.NaT, "nan", "inf", b"x", datetime.date(2500, 1, 1)]),
)
CELLS = st.sampled_from([ANYTHING, st.floats(), st.text(max_size=2), st.datetimes()])


def column(cells, dtype):
    try:
        return pd.Series(cells, dtype=dtype)
    except (TypeError, ValueError, OverflowError, RuntimeWarning):
        return pd.Series(cells, dtype=object)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_any_column_is_encoded_or_refused_in_one_line(data):
    dtype = data.draw(st.sampled_from([object, "str", "category", "Int64", "boolean"]))
    size = data.draw(st.integers(2, 6))
    cells = data.draw(CELLS.flatmap(lambda kind: st.lists(kind, min_size=size, max_size=size)))
    queries = data.draw(CELLS.flatmap(lambda kind: st.lists(kind, min_size=1, max_size=4)))
    table = pd.DataFrame({"a": column(cells, dtype), "b": range(size)})
    refusal = None
    try:
        preprocessor = TablePreprocessor().fit(table)
        matrix = preprocessor.transform(table)
        np.testing.assert_array_equal(preprocessor.transform(table[::-1]), matrix[::-1])
        other = pd.DataFrame({"a": column(queries, dtype), "b": range(len(queries))})
        answers = preprocessor.transform(other)
    except DataError as error:
        refusal = str(error)
    if refusal is None:
        assert not np.isinf(matrix).any()
        assert not np.isinf(answers).any()
    else:
        assert "'a'" in refusal
        assert "\n" not in refusal
