"""Tables of other libraries, and cells that pandas cannot compute with."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.frames import computable, computable_array, from_other_library
from tabicl_linear.estimator.rows.labelled import checked_table

ROWS = 20
LABELS = ["a", "b"] * (ROWS // 2)
HUGE = 10**400


def fitted(table, labels=LABELS):
    return RandomFeatureRidge(n_estimators=2).fit(table, labels)


@pytest.fixture(scope="module")
def polars():
    return pytest.importorskip("polars")


@pytest.fixture(scope="module")
def frame():
    """Columns of all usual types, each with a missing value where its type has one."""
    return pd.DataFrame(
        {
            "number": np.arange(ROWS) / 7,
            "text": [*["u", "v"] * 9, "u", None],
            "flag": pd.array([*[True, False] * 9, True, None], dtype="boolean"),
            "kind": pd.Categorical(["x", "y"] * 10),
            "day": pd.to_datetime(["2024-01-01", "2024-05-01"] * 10),
            "count": pd.array([*range(19), None], dtype="Int64"),
        }
    )


class TestOtherLibraries:
    def test_a_polars_frame_is_the_same_table(self, polars, frame):
        table = polars.from_pandas(frame)
        expected = fitted(frame)
        actual = fitted(table, polars.Series("y", LABELS))
        assert actual.feature_names_in_.tolist() == frame.columns.tolist()
        kinds = [type(column) for column in actual.preprocessor_.columns]
        assert kinds == [type(column) for column in expected.preprocessor_.columns]
        probabilities = expected.predict_proba(frame)
        np.testing.assert_array_equal(actual.predict_proba(table), probabilities)
        # By name, and across libraries.
        np.testing.assert_array_equal(
            actual.predict_proba(table.select(table.columns[::-1])), probabilities
        )
        np.testing.assert_array_equal(actual.predict_proba(frame), probabilities)

    def test_polars_tables_that_cannot_be_used(self, polars):
        table = polars.DataFrame({"x": range(ROWS)})
        with pytest.raises(DataError, match=r"LazyFrame has no rows yet; give frame\.collect\(\)"):
            fitted(table.lazy())
        with pytest.raises(DataError, match="0 rows"):
            fitted(table[:0], [])
        wide = table.with_columns(big=polars.Series([10**30, 2] * 10, dtype=polars.Int128))
        with pytest.raises(DataError, match="Column 'big' cannot be turned into pandas") as no:
            fitted(wide)
        assert "\n" not in str(no.value)

    def test_an_arrow_table_is_the_same_table(self, frame):
        table = pa.Table.from_pandas(frame)
        expected = fitted(frame).predict_proba(frame)
        classifier = fitted(table, pa.array(LABELS))
        np.testing.assert_array_equal(classifier.predict_proba(table), expected)
        with pytest.raises(DataError, match="missing 'kind'"):
            classifier.predict(table.drop_columns("kind"))

    def test_masked_values_are_missing(self):
        table = np.random.default_rng(0).normal(size=(ROWS, 2))
        mask = np.zeros(table.shape, dtype=bool)
        mask[3, 0] = True
        missing = np.where(mask, np.nan, table)
        masked = np.ma.masked_array(table, mask)
        expected = fitted(missing).predict_proba(missing)
        np.testing.assert_array_equal(fitted(masked).predict_proba(masked), expected)
        texts = np.ma.masked_array(np.where(table > 0, "u", "v"), mask)
        np.testing.assert_array_equal(pd.isna(from_other_library(texts)), mask)

    def test_everything_else_is_returned_as_it_is(self):
        for values in ([1], np.zeros(2), pd.DataFrame(), None, "text"):
            assert from_other_library(values) is values


class TestArrowTypes:
    @pytest.mark.parametrize(
        ("kind", "cells"),
        [
            (pa.string(), ["u", None]),
            (pa.bool_(), [True, None]),
            (pa.null(), [None, None]),
            (pa.binary(), [b"u", b"v"]),
            (pa.time64("us"), [datetime.time(1), None]),
            (pa.date32(), [datetime.date(2024, 1, 1), None]),
            (pa.list_(pa.int64()), [[1, 2], None]),
            (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}]),
            (pa.dictionary(pa.int8(), pa.string()), ["u", None]),
            (pa.dictionary(pa.int8(), pa.float64()), [1.5, None]),
            (pa.string_view(), ["u", None]),
            (pa.run_end_encoded(pa.int32(), pa.float64()), [1.5, None]),
        ],
        ids=str,
    )
    def test_columns_are_read_or_refused_by_us(self, kind, cells):
        values = pd.Series(pd.array(cells * 10, dtype=pd.ArrowDtype(kind)))
        table = pd.DataFrame({"a": values, "b": range(ROWS)})
        assert np.isfinite(fitted(table).predict_proba(table)).all()

    def test_times_of_day_in_nanoseconds_are_read_to_the_microsecond(self):
        cells = pa.array([5_000_001_009, None], pa.int64()).cast(pa.time64("ns"))
        table = pd.DataFrame({"a": pd.Series(cells, dtype=pd.ArrowDtype(cells.type))})
        assert computable(table).a.tolist() == [datetime.time(0, 0, 5, 1), None]

    @pytest.mark.parametrize("library", ["pyarrow", "pandas"])
    @pytest.mark.parametrize("cells", [["v", "9", "u", "10"], [3, 1, 2, 10]], ids=repr)
    def test_dictionaries_are_sorted_whatever_order_their_values_came_in(self, cells, library):
        table = pa.table({"a": pa.array(cells).dictionary_encode()})
        if library == "pandas":
            table = table.to_pandas(types_mapper=pd.ArrowDtype)
        frame = computable(from_other_library(table))
        expected = ["9", "10", "u", "v"] if "u" in cells else [1, 2, 3, 10]
        assert frame.a.cat.categories.tolist() == expected
        assert frame.a.tolist() == cells

    @pytest.mark.parametrize("library", ["polars", "pyarrow", "pandas"])
    def test_so_are_those_of_tables_of_other_libraries(self, library, request):
        cells = pa.array([5_000_001_009, None], pa.int64()).cast(pa.time64("ns"))
        table = pa.table({"a": cells, "b": [1, 2]})
        if library == "polars":
            table = request.getfixturevalue("polars").from_arrow(table)
        elif library == "pandas":
            table = table.to_pandas(types_mapper=pd.ArrowDtype)
        frame = computable(from_other_library(table))
        assert frame.a.tolist() == [datetime.time(0, 0, 5, 1), None]
        assert frame.b.tolist() == [1, 2]

    @pytest.mark.parametrize("library", ["pyarrow", "pandas"])
    @pytest.mark.parametrize(
        ("kind", "told"),
        [
            (pa.timestamp("us", "Mars/Base"), r"timestamp\[us, tz=Mars/Base\]"),
            (pa.date32(), "year 275760"),
        ],
        ids=str,
    )
    def test_columns_that_pandas_cannot_hold_are_named(self, kind, told, library):
        cells = pa.array([10**8] * ROWS, pa.int32() if kind == pa.date32() else pa.int64())
        table = pa.table({"a": range(ROWS), "b": cells.cast(kind)})
        if library == "pandas":
            table = table.to_pandas(types_mapper=pd.ArrowDtype)
        with pytest.raises(DataError, match=rf"Column 'b' .*{told}.*cast it to") as refusal:
            fitted(table)
        assert "\n" not in str(refusal.value)

    def test_text_of_arrow_that_is_no_utf8_is_refused(self):
        buffers = pa.array([b"\xff", b"a"] * 10).buffers()
        table = pa.table({"a": pa.Array.from_buffers(pa.string(), ROWS, buffers)})
        with pytest.raises(DataError, match=r"Column 0: .*Invalid UTF8"):
            fitted(table)

    def test_durations_are_refused(self):
        cells = pa.array([datetime.timedelta(1), None] * 10)
        table = pd.DataFrame({"a": pd.Series(cells, dtype=pd.ArrowDtype(cells.type))})
        with pytest.raises(DataError, match="'a' holds durations"):
            fitted(table)


class TestCellsOfObjects:
    @pytest.mark.parametrize("sign", [1, -1])
    def test_integers_beyond_float64_are_infinite(self, sign):
        cells = [sign * HUGE, 1, sign * 2**1023, Fraction(sign * HUGE, 3), Fraction(1, 4)]
        expected = [sign * np.inf, 1, sign * 2**1023, sign * np.inf, 0.25]
        assert (
            computable(pd.DataFrame({"a": pd.Series(cells, dtype=object)})).a.tolist() == expected
        )
        array = np.array([cells, [None, "x", 3, 4, 5]], dtype=object)
        assert computable_array(array).tolist() == [expected, [None, "x", 3, 4, 5]]

    @pytest.mark.parametrize("cell", [HUGE, Decimal("sNaN")], ids=["huge", "sNaN"])
    @pytest.mark.parametrize("wrap", [pd.DataFrame, np.array, list], ids=["frame", "array", "list"])
    def test_they_count_as_missing(self, wrap, cell):
        """pandas cannot tell whether a signalling NaN is one."""
        rows = [[cell if i == 3 else i % 2, i] for i in range(ROWS)]
        missing = [[np.nan if i == 3 else i % 2, i] for i in range(ROWS)]
        table = pd.DataFrame(rows, dtype=object) if wrap is pd.DataFrame else wrap(rows)
        expected = fitted(missing).predict_proba(missing)
        np.testing.assert_allclose(fitted(table).predict_proba(table), expected, atol=1e-12)

    @pytest.mark.parametrize("wrap", [np.array, torch.tensor], ids=["numpy", "torch"])
    def test_arrays_of_no_dimension_are_what_they_hold(self, wrap):
        """So do items of other libraries' arrays come."""
        plain = pd.DataFrame({"a": [i % 7 / 4 for i in range(ROWS)], "b": range(ROWS)})
        table = plain.assign(a=pd.Series([wrap(i % 7 / 4) for i in range(ROWS)], dtype=object))
        assert all(cell.ndim == 0 for cell in table["a"])
        expected = fitted(plain).predict_proba(plain)
        np.testing.assert_array_equal(fitted(table).predict_proba(table), expected)

    @pytest.mark.parametrize("wrap", [pd.DataFrame, np.array], ids=["frame", "array"])
    def test_dates_of_numpy_among_objects_are_dates(self, wrap):
        days = pd.date_range("2024-01-01", periods=ROWS)
        rows = [[day.date() if i % 2 else day.to_datetime64(), i] for i, day in enumerate(days)]
        table = wrap(np.array(rows, dtype=object))
        plain = pd.DataFrame({0: days, 1: range(ROWS)})
        expected = fitted(plain).predict_proba(plain)
        np.testing.assert_array_equal(fitted(table).predict_proba(table), expected)

    @pytest.mark.parametrize(
        "form",
        [
            lambda cells: pd.Series(cells, dtype=object),
            lambda cells: pd.Series(pa.array(cells), dtype=pd.ArrowDtype(pa.binary())),
            lambda cells: pd.Series(cells, dtype="category"),
        ],
        ids=["objects", "arrow", "categories"],
    )
    def test_bytes_are_the_text_that_they_are(self, form):
        """So does pandas read SAS files, SciPy ARFF files, and NumPy text."""
        texts = ["a", "\u00e9", "b", "c"] * 5
        plain = pd.DataFrame({"a": texts, "b": range(ROWS)})
        table = plain.assign(a=form([text.encode() for text in texts]))
        classifier = fitted(table)
        for queries in (plain, table):
            expected = fitted(plain).predict_proba(plain)
            np.testing.assert_array_equal(classifier.predict_proba(queries), expected)

    def test_bytes_in_arrays_hold_numbers_gaps_and_what_is_no_text(self):
        cells = np.array([[b"1.5"], [b"nan"], [b"\xff"], [b""]])
        assert cells.dtype.kind == "S"
        assert computable_array(cells).tolist() == [["1.5"], ["nan"], ["\\xff"], [""]]

    @pytest.mark.parametrize("form", ["frame", "array", "objects"])
    def test_long_doubles_are_read_and_saved_as_float64(self, form, tmp_path):
        plain = np.column_stack([np.arange(ROWS) / 7, np.arange(ROWS) % 3])
        table = plain.astype(np.longdouble)
        if form == "frame":
            table = pd.DataFrame(table)
        elif form == "objects":
            table = pd.DataFrame([list(row) for row in table], dtype=object)
            assert all(type(cell) is np.longdouble for cell in table[0])
        expected = TabICLLinearClassifier(trees=True).fit(plain, LABELS)
        # It holds its rows, which the file is to store.
        TabICLLinearClassifier(trees=True).partial_fit(table, LABELS).save(tmp_path / "c.state")
        loaded = TabICLLinearClassifier.load(tmp_path / "c.state")
        np.testing.assert_array_equal(loaded.predict_proba(table), expected.predict_proba(plain))

    def test_long_doubles_beyond_float64_are_infinite(self):
        with np.errstate(over="ignore"):
            cells = np.array([np.longdouble(1e308) * 1e10, 1])
            largest = [float(cells[0]), 1]
        assert computable(pd.DataFrame({"a": cells}))["a"].tolist() == largest
        assert computable_array(cells).tolist() == largest
        assert computable_array(cells.astype(object)).tolist() == largest

    def test_a_huge_label_is_not_printed_whole(self):
        with pytest.raises(DataError, match="type int, such as 1000") as refusal:
            fitted(np.arange(ROWS)[:, None], [HUGE, 1] * 10)
        assert len(str(refusal.value)) < 400

    @pytest.mark.filterwarnings("ignore:Column 'a' mixes numbers:UserWarning")
    def test_objects_of_all_kinds_are_categories(self):
        kinds = [1, "x", None, 2.5, True, b"z", datetime.date(2024, 1, 1), (1, 2), [3], HUGE]
        table = pd.DataFrame({"a": pd.Series(kinds * 2, dtype=object), "b": range(ROWS)})
        assert np.isfinite(fitted(table).predict_proba(table)).all()


class TestLoneSurrogates:
    """Half a character, as a truncated emoji in JSON is: no file can hold it."""

    @pytest.mark.parametrize("wrap", [pd.DataFrame, np.array, list], ids=["frame", "array", "list"])
    def test_in_cells_they_are_categories_like_others(self, wrap, tmp_path):
        rows = [["\ud83dx" if i % 3 else "u", "v" if i % 2 else "w"] for i in range(ROWS)]
        table = pd.DataFrame(rows, dtype=object) if wrap is pd.DataFrame else wrap(rows)
        classifier = fitted(table)
        named = np.array([[cell.replace("\ud83d", "half") for cell in row] for row in rows])
        expected = classifier.predict_proba(table)
        np.testing.assert_array_equal(fitted(named).predict_proba(named), expected)
        classifier.save(tmp_path / "c.state")
        loaded = RandomFeatureRidge.load(tmp_path / "c.state")
        np.testing.assert_array_equal(loaded.predict_proba(table), expected)

    def test_in_names_of_columns(self, tmp_path):
        names = pd.Index(["a", "\udfff"], dtype=object)
        table = pd.DataFrame(np.eye(ROWS)[:, :2]).set_axis(names, axis=1)
        classifier = fitted(table.assign(a=pd.Series(["\ud800", "b"] * 10, dtype=object)))
        classifier.save(tmp_path / "c.state")
        assert RandomFeatureRidge.load(tmp_path / "c.state").feature_names_in_.tolist() == [*names]
        with pytest.raises(DataError, match=r"missing '\\udfff'; unknown 'b'"):
            classifier.predict(table.set_axis(["a", "b"], axis=1))

    @pytest.mark.parametrize("dtype", [object, str], ids=["object", "str"])
    def test_as_labels_they_are_refused(self, dtype):
        with pytest.raises(DataError, match=r"y holds '\\ud800', .* give label\.encode"):
            fitted(np.arange(ROWS)[:, None], np.array(["\ud800", "b"] * 10, dtype=dtype))


class TestNames:
    @pytest.mark.parametrize("names", [["a", "b", "a"], [0, 1, 0]], ids=str)
    def test_names_that_occur_twice(self, names):
        table = pd.DataFrame(np.eye(3), columns=names)
        with pytest.raises(DataError, match="occurs more than once; rename the columns"):
            fitted(table, [0, 1, 1])

    @pytest.mark.parametrize("name", [None, np.nan, pd.NaT])
    def test_a_column_without_a_name(self, name):
        table = pd.DataFrame([[1, 2]], columns=pd.Index([1.0, name], dtype=object))
        with pytest.raises(
            DataError, match=r"^The column in place 1 has no name .*; give it one\.$"
        ):
            computable(table)

    def test_names_of_several_types(self):
        table = pd.DataFrame(np.eye(2), columns=["a", 1])
        with pytest.raises(DataError, match=r"types int and str; .* table\.columns\.astype\(str\)"):
            fitted(table, [0, 1])

    def test_a_query_with_a_name_twice(self):
        classifier = fitted(pd.DataFrame(np.eye(3), columns=["a", "b", "c"]), [0, 1, 1])
        with pytest.raises(DataError, match="'a' occurs more than once"):
            classifier.predict(pd.DataFrame(np.eye(3), columns=["a", "b", "a"]))

    @pytest.mark.parametrize(
        "dtype",
        ["float16", "float32", pd.SparseDtype(np.float32, -3.0), "bool", "object", "str"],
        ids=str,
    )
    def test_a_sparse_column_is_the_dense_one(self, dtype):
        sparse = dtype if isinstance(dtype, pd.SparseDtype) else pd.SparseDtype(dtype)
        cells = pd.Series([5.1, 0.0, -3.0, -3.0]).astype(sparse.subtype)
        result = computable(pd.DataFrame({"a": cells.astype(sparse)}))
        pd.testing.assert_frame_equal(result, pd.DataFrame({"a": cells}))

    def test_frames_that_need_no_change_are_not_copied(self, frame):
        assert computable(frame) is frame


@pytest.mark.parametrize("kind", [list, tuple])
def test_numbers_beside_text_in_nested_lists_stay_numbers(kind):
    """As rows of a database are given, where NumPy would make text of all of them."""
    rows = [kind(row) for row in ([1.5, 2, "a"], [0.5, True, "b"])]
    table = checked_table(rows)
    assert table.tolist() == [[1.5, 2, "a"], [0.5, True, "b"]]
    assert checked_table([["1.5", "a"], ["0.5", "b"]]).tolist() == [["1.5", "a"], ["0.5", "b"]]
