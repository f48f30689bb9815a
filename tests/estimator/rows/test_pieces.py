"""Pieces of a table are checked against the first, and joined to what the whole table is."""

import numpy as np
import pandas as pd
import pytest
from estimator.files.test_state_file import FEW, table
from scipy import sparse

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.pieces import checked_pieces, joined

Y = np.array([0, 1, 0])
FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", None]})
ARRAY = np.eye(3)


def listed(*pieces):
    return list(checked_pieces(iter(pieces)))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((FRAME, Y), (FRAME, Y[:2]), r"inconsistent numbers of samples: \[3, 2\]"),
        ((FRAME, Y), (FRAME[["b"]], Y), "those of the first piece: missing 'a'. Give the same"),
        ((FRAME, Y), (FRAME.assign(c=1), Y), "those of the first piece: unknown 'c'"),
        ((FRAME, Y), (pd.concat([FRAME, FRAME], axis=1), Y), "occurs more than once"),
        ((FRAME, Y), (ARRAY, Y), "in one form"),
        ((ARRAY, Y), (FRAME, Y), "in one form"),
        ((ARRAY, Y), (ARRAY[:, :2], Y), "X has 2 columns and that of the first piece 3; give"),
        ((ARRAY, Y), (ARRAY[0], Y), "Expected 2D array"),
        ((ARRAY, Y), ([[1, 2, 3], [1]], Y[:2]), "inhomogeneous"),
        ((ARRAY, Y), (ARRAY, [0, None, 1]), "1 of 3 labels are missing"),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_piece_unlike_the_first_is_refused_with_its_number(first, second, message, before):
    with pytest.raises(DataError, match=f"^Piece {2 + before}: .*{message}") as refusal:
        listed(*[first] * (1 + before), second)
    assert "\n" not in str(refusal.value)


def test_lengths_that_agree_in_sum_only_are_refused():
    """Else labels would belong to other rows."""
    with pytest.raises(DataError, match=r"^Piece 1: .*inconsistent numbers of samples"):
        listed((FRAME, Y[:2]), (FRAME[:2], Y))


def test_sparse_pieces_are_refused_as_a_sparse_table_is():
    x = sparse.csr_matrix(ARRAY)
    messages = []
    for arguments in ((x, Y), (iter([(x, Y), (x, Y)]),)):
        with pytest.raises(TypeError, match="Sparse data was passed") as refusal:
            RandomFeatureRidge(FEW).fit(*arguments)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]


def test_pieces_without_rows_are_left_out():
    assert [len(rows.labels) for rows in listed((FRAME, Y), (FRAME[:0], []), (FRAME, Y))] == [3, 3]


def test_a_generator_may_fill_the_same_arrays_for_every_piece():
    def pieces():
        x, y = np.empty((2, 3)), np.empty(2, int)
        for number in range(3):
            x[:], y[:] = number, number
            yield x, y

    for number, rows in enumerate(list(checked_pieces(pieces()))):
        assert (rows.table == number).all()
        assert rows.labels.tolist() == [number, number]


def test_columns_of_frames_come_in_the_order_of_the_first():
    tables = [x for x, _ in listed((FRAME, Y), (FRAME[["b", "a"]], Y))]
    pd.testing.assert_frame_equal(joined(tables), pd.concat([FRAME, FRAME], ignore_index=True))


def categories(values, names, ordered=False):
    return pd.DataFrame({"a": pd.Categorical(values, names, ordered=ordered)})


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (list("bd"), list("ac"), list("abcd")),
        (list("ba"), list("ac"), list("bac")),
        ([1, 3], [0, 2], [0, 1, 2, 3]),
        ([2.5, 3.5], [0, 3], [2.5, 3.5, 0, 3]),
        ([1, 2], ["a", "b"], [1, 2, "a", "b"]),
        ([], ["a", "b"], ["a", "b"]),
    ],
)
def test_categories_are_those_of_all_pieces(first, second, expected):
    cells = [[*first, None], [*second, None]]
    result = joined([categories(*each) for each in zip(cells, (first, second), strict=True)])
    assert result["a"].cat.categories.tolist() == expected
    assert not result["a"].cat.ordered
    values = result["a"].astype(object)
    assert values.where(values.notna(), None).tolist() == [*first, None, *second, None]


@pytest.mark.parametrize(
    ("first", "second"),
    [(["low", "mid"], ["mid", "high"]), (["low", "mid", "high"], ["high"]), (["low"], None)],
)
def test_ordered_categories_keep_their_order(first, second):
    second = second or ["low", "mid", "high"]
    parts = [categories(each, each, ordered=True) for each in (first, second)]
    for tables in (parts, parts[::-1]):
        result = joined(tables)["a"]
        assert result.cat.ordered
        assert result.cat.categories.tolist() == ["low", "mid", "high"]
        assert result.tolist() == [value for part in tables for value in part["a"]]


@pytest.mark.parametrize(
    ("first", "second"), [(["low", "high"], ["high", "low"]), (["low", "mid"], ["low", "high"])]
)
def test_orders_that_do_not_agree_are_refused(first, second):
    tables = [categories(each, each, ordered=True) for each in (first, second)]
    with pytest.raises(DataError, match=r"Column 'a' .*pieces do not agree.*CategoricalDtype"):
        joined(tables)


def test_categories_in_pieces_are_those_of_the_whole():
    x, y = table(90)
    x = x.drop(columns=["when", "void"])
    x["size"] = np.array(["mid", "low", "high"])[np.arange(90) % 3]
    sizes = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    whole = x.astype({"text": "category", "size": sizes})
    parts = [x[:40].astype({"text": "category", "size": sizes}), whole[40:]]
    parts[0]["text"] = parts[0]["text"].cat.set_categories(["a", "b", "c", "d", "z"])
    pieces = RandomFeatureRidge(FEW).fit(iter([(parts[0], y[:40]), (parts[1], y[40:])]))
    expected = RandomFeatureRidge(FEW).fit(whole, y)
    assert pieces.preprocessor_.columns == expected.preprocessor_.columns
    np.testing.assert_array_equal(pieces.predict_proba(x), expected.predict_proba(x))


def test_arrays_of_different_kinds_keep_their_cells():
    result = joined([np.array([[1, 2]]), np.array([["1", "b"]])])
    assert result.dtype == object
    assert result.tolist() == [[1, 2], ["1", "b"]]


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
@pytest.mark.parametrize("others", [[[1.5, "x"]], [[pd.Timestamp("2023-05-01"), None]]], ids=str)
def test_so_do_arrays_of_dates(others, unit):
    """NumPy makes integers of dates in nanoseconds, which pandas mostly has."""
    days = ["2024-01-01", "2024-01-02"]
    dates = np.array([days], dtype=f"datetime64[{unit}]")
    others = np.array(others, dtype=object)
    expected = [pd.Timestamp(day) for day in days]
    assert joined([others, dates]).tolist() == [*others.tolist(), expected]
    assert joined([dates, others]).tolist() == [expected, *others.tolist()]


def test_arrays_of_numbers_stay_numbers():
    result = joined([np.array([[1, 2]]), np.array([[1.5, 2]], dtype=np.float32)])
    assert result.dtype == np.float64


def test_floats_of_several_types_are_the_decimals_that_they_stand_for():
    """As pieces whose columns were made as small as each piece allows."""
    types = ("float32", "float16", "Float32", "float64", "object")
    frames = [pd.DataFrame({"a": pd.Series([5.1, 2.0, None], dtype=dtype)}) for dtype in types]
    whole = joined([*frames, pd.DataFrame({"a": [3]})])
    assert whole["a"].dropna().tolist() == [5.1, 2.0] * len(types) + [3]
    assert frames[0]["a"].dtype == np.float32  # is left as it was
    arrays = [np.array([[5.1, 2.0]], dtype=dtype) for dtype in types[:2]]
    np.testing.assert_array_equal(joined([*arrays, np.array([[3, 4]])]), [[5.1, 2]] * 2 + [[3, 4]])
    assert joined([*arrays, np.array([["x", None]])]).tolist() == [[5.1, 2]] * 2 + [["x", None]]
