import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.categorical import (
    MAX_CATEGORIES,
    CategoryColumn,
    fit_categories,
)
from tabicl_linear.estimator.columns.dropped import DroppedColumn
from tabicl_linear.estimator.columns.numeric import MissingColumn, NumericColumn, fit_numeric
from tabicl_linear.estimator.columns.reading import Reading, read_as

NAN = float("nan")
OBJECT = {"dtype": object}


def fit_all(cells, name="a", *, declared_categorical=False, labels=None):
    cells = cells.rename(name)
    reading = Reading("categorical") if declared_categorical else read_as(cells)
    is_numeric = reading.kind in ("numeric", "datetime")
    return (fit_numeric if is_numeric else fit_categories)(cells, 0, reading, labels)


def fit_column(cells, name, position, **options):
    """The first record of a column: that of its values."""
    return fit_all(cells, name, **options)[0]


def encode(values, **options):
    cells = pd.Series(values, **options)
    return fit_column(cells, "a", 0).encode(cells)


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series([1, 2, 4]),
        pd.Series([1, 2, 4], dtype="int8"),
        pd.Series([1.0, 2.0, 4.0], dtype="float32"),
        pd.Series([1, 2, 4], dtype="Int64"),
        pd.Series([1, 2, 4], dtype="Float64"),
        pd.Series([1, 2, 4], dtype=object),
        pd.Series(["1", "2", "4"]),
        pd.Series(["1", "2", "4"], dtype=object),
        pd.Series(["1", "2.0", "4e0"], dtype="string"),
        pd.Series([Decimal(1), Decimal(2), Decimal(4)], dtype=object),
        pd.Series([1, 2, 4], dtype="int64[pyarrow]"),
    ],
    ids=lambda cells: str(cells.dtype),
)
def test_numbers_of_every_dtype_are_the_same_scores(cells):
    column = fit_column(cells, "a", 0)
    assert isinstance(column, NumericColumn)
    values = np.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(column.encode(cells), (values - values.mean()) / values.std())


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series([1.0, NAN, 3.0]),
        pd.Series([1.0, np.inf, 3.0]),
        pd.Series([1.0, -np.inf, 3.0]),
        pd.Series([1, pd.NA, 3], dtype="Int64"),
        pd.Series([1, pd.NA, 3], dtype="Float64"),
        pd.Series([1, None, 3], dtype=object),
        pd.Series([1, pd.NA, 3], dtype=object),
        pd.Series(["1", "", "3"]),
        pd.Series(["1", "nan", "3"], dtype=object),
    ],
    ids=lambda cells: f"{cells.dtype}-{cells.iloc[1]!r}",
)
def test_missing_and_infinite_numbers_stay_missing(cells):
    np.testing.assert_allclose(fit_column(cells, "a", 0).encode(cells), [-1.0, NAN, 1.0])


@pytest.mark.parametrize("scale", [1e-290, 1.0, 1e290])
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_scores_keep_precision_at_large_offsets_and_extreme_scales(scale, offset):
    steps = np.arange(50.0)
    values = (steps + offset) * scale
    expected = (steps - steps.mean()) / steps.std()
    np.testing.assert_allclose(encode(values), expected, rtol=1e-5)


def test_full_range_of_float64():
    assert encode([-1.7e308, 1.7e308]).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("far", [1e9, 1e12, -1e300, 1.7e308])
def test_a_value_far_out_leaves_the_others_told_apart(far):
    # Learners read float32.
    values = np.append(np.random.default_rng(0).normal(size=50), far)
    scores = encode(values).astype(np.float32)
    assert len(np.unique(scores)) == len(values)
    assert (np.argsort(scores) == np.argsort(values)).all()


def test_without_such_a_value_numbers_are_read_as_they_are():
    values = np.append(np.arange(50.0), 1e6)
    np.testing.assert_allclose(encode(values), (values - values.mean()) / values.std())


def test_query_values_are_clipped():
    column = fit_column(pd.Series([0.0, 1.0]), "a", 0)
    assert column.encode(pd.Series([1e308, -1e308])).tolist() == [100.0, -100.0]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (pd.Series([3.0, 3.0]), "the same value"),
        (pd.Series([NAN, NAN]), "no training row"),
        (pd.Series([np.inf, -np.inf]), "no training row"),
        (pd.Series([0.0, 5e-324]), "the same value"),  # half their difference is zero
        (pd.Series([None, None], dtype=object), "no training row"),
        (pd.Series(["a", "a"]), "the same value"),
        (pd.Series([True, True]), "the same value"),
        (pd.Series([None, None], dtype="category"), "no training row"),
        (pd.Series([pd.NaT, pd.NaT]), "no training row"),
        (pd.Series([pd.Timestamp(0)] * 2), "the same value"),
    ],
)
def test_columns_that_say_nothing_are_dropped(cells, reason):
    (column,) = fit_all(cells)
    assert isinstance(column, DroppedColumn)
    assert reason in column.reason


@pytest.mark.parametrize(
    "dtype", ["object", "str", "string", "string[pyarrow]", "category"], ids=str
)
def test_text_of_every_dtype_is_the_same_codes(dtype):
    cells = pd.Series(["b", "a", None, "b"], dtype=dtype)
    column = fit_column(cells, "a", 0)
    assert isinstance(column, CategoryColumn)
    assert column.encode(cells).tolist() == [1, 0, 2, 1]
    assert column.encode(pd.Series(["c", None, "a"])).tolist() == [-1, 2, 0]


def test_training_text_read_with_another_dtype_keeps_its_codes():
    column = fit_column(pd.Series(["b", "a", "b"], dtype="category"), "a", 0)
    for dtype in ("object", "str", "string", "category"):
        assert column.encode(pd.Series(["a", "b"], dtype=dtype)).tolist() == [0, 1]


def test_categories_follow_the_order_of_their_dtype_and_skip_unused_ones():
    dtype = pd.CategoricalDtype(["low", "never", "mid", "high"], ordered=True)
    cells = pd.Series(["high", "low", "mid"], dtype=dtype)
    assert encode(cells).tolist() == [2, 0, 1]


def test_declared_categories_are_ordered_as_numbers_and_known_by_value():
    column = fit_column(pd.Series([10, 9, 2]), "a", 0, declared_categorical=True)
    assert column.encode(pd.Series([2, 9, 10])).tolist() == [0, 1, 2]
    assert column.encode(pd.Series([2.0, 9.0, 10.0])).tolist() == [0, 1, 2]
    assert column.encode(pd.Series(["2", "9", "11"])).tolist() == [0, 1, -1]
    np.testing.assert_array_equal(column.encode(pd.Series([NAN, 9.0, np.inf])), [NAN, 1, NAN])


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series([True, False]),
        pd.Series([True, False], dtype="boolean"),
        pd.Series([True, False], dtype=object),
        pd.Series([True, "false"], dtype=object),
        pd.Series([1.0, False], dtype=object),
    ],
    ids=lambda cells: f"{cells.dtype}-{cells[0]}-{cells[1]}",
)
def test_booleans_are_categories_of_any_spelling(cells):
    column = fit_column(cells, "a", 0)
    assert column.kind == "boolean"
    assert column.encode(cells).tolist() == [1, 0]
    np.testing.assert_array_equal(
        column.encode(pd.Series([True, pd.NA], dtype="boolean")), [1, NAN]
    )
    np.testing.assert_array_equal(column.encode(pd.Series([1.0, 0.0, NAN])), [1, 0, NAN])
    assert column.encode(pd.Series(["true", "False"])).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"'a' held booleans .* 'yes'"):
        column.encode(pd.Series(["yes"]))


@pytest.mark.parametrize("dtype", ["object", "str", "category"])
def test_categories_that_differ_in_blanks_alone_are_told(dtype):
    cells = pd.Series(["b", "a", " a", "b  c", "a ", "b c"], dtype=dtype)
    message = r"^Column 'a' has .* alone: ' a' and 'a' and 'a '\. .*str\.strip\(\)\.$"
    with pytest.warns(UserWarning, match=message):
        assert encode(cells).max() == 5  # told apart


@pytest.mark.parametrize("seen", [True, False])
def test_a_truth_value_that_training_rows_lack_is_an_unseen_category(seen):
    column = fit_column(pd.Series([seen, None, seen], dtype="boolean"), "a", 0)
    for other in (not seen, str(not seen), float(not seen)):
        assert column.encode(pd.Series([other])).tolist() == [-1]
    both = pd.Series([seen, not seen, None], dtype="boolean")
    assert column.encode(both).tolist() == [0, -1, 1]
    with pytest.raises(DataError, match=r"'a' held booleans .* holds 'yes' here"):
        column.encode(pd.Series([str(not seen), "yes"]))


def test_numbers_that_turn_into_text_are_refused_with_the_first_one():
    column = fit_column(pd.Series([1, 2]), "age", 0)
    with pytest.raises(DataError, match=r"'age' held numbers .* holds '0,126' here"):
        column.encode(pd.Series(["1", "0,126"], name="age"))
    assert column.encode(pd.Series(["1", "2"])).tolist() == [-1, 1]
    assert column.encode(pd.Series([1, 2], dtype="category")).tolist() == [-1, 1]
    with pytest.raises(DataError, match=r"'age' held numbers .* holds 'old' here"):
        column.encode(pd.Series(["1", "old"], name="age"))
    with pytest.raises(DataError, match=r"'age' held numbers .* holds dates here"):
        column.encode(pd.Series(pd.to_datetime(["2024-01-01"]), name="age"))


def test_text_that_turns_into_numbers_is_refused():
    column = fit_column(pd.Series(["x", "y"]), "a", 0)
    with pytest.raises(DataError, match=r"'a' held categories such as 'x' .* holds numbers"):
        column.encode(pd.Series([1.5]))
    with pytest.raises(DataError, match=r"'a' held categories .* holds dates"):
        column.encode(pd.Series(pd.to_datetime(["2024-01-01"])))
    with pytest.raises(DataError, match=r"'a' held categories .* holds booleans \(True\)"):
        column.encode(pd.Series([True, False]))
    # A column without any value is read as numbers by pandas: that is no change.
    np.testing.assert_array_equal(column.encode(pd.Series([NAN, NAN])), [NAN, NAN])


@pytest.mark.parametrize(
    "cells",
    [pd.Series(["T", None, "T"]), pd.Series([True, None, True], dtype=object)],
    ids=["text", "boolean"],
)
def test_missing_is_a_category_of_its_own(cells):
    (column,) = fit_all(cells)
    assert isinstance(column, CategoryColumn)
    assert column.encode(cells).tolist() == [0, 1, 0]


def test_missing_joins_neither_rare_categories_nor_unknown_ones():
    names = [f"c{i}" for i in range(MAX_CATEGORIES)]
    cells = pd.Series([*names, *names[: MAX_CATEGORIES - 2], None])
    with pytest.warns(UserWarning, match="256 categories"):
        (column,) = fit_all(cells)
    codes = column.encode(cells)
    assert len(np.unique(codes)) == MAX_CATEGORIES
    assert codes[-1] == MAX_CATEGORIES - 1
    assert column.encode(pd.Series(["other"])).tolist() == [MAX_CATEGORIES - 2]


@pytest.mark.parametrize(
    "cells",
    [pd.Series([3.0, NAN, 3.0]), pd.Series([pd.Timestamp(0), pd.NaT, pd.Timestamp(0)])],
    ids=["number", "date"],
)
def test_one_value_or_none_becomes_the_indicator(cells):
    (column,) = fit_all(cells)
    assert isinstance(column, MissingColumn)
    assert column.encode(cells).tolist() == [0, 1, 0]


def test_one_value_or_none_is_told_however_rare_none_is():
    cells = pd.Series([3.0] * 99 + [NAN])
    (column,) = fit_all(cells)
    assert column.encode(cells).sum() == 1


@pytest.mark.parametrize(
    ("share", "informative", "is_there"),
    [(0.04, True, True), (0.04, False, False), (0.05, False, True), (0.0, False, False)],
)
def test_missing_numbers_are_told_where_many_or_informative(share, informative, is_there):
    rng = np.random.default_rng(0)
    labels = 2 * (np.arange(1000) % 3)  # classes between them were announced and have no rows yet
    values = rng.normal(size=1000)
    rows = np.flatnonzero(labels == 4) if informative else rng.permutation(1000)
    values[rows[: round(share * 1000)]] = NAN
    columns = fit_all(pd.Series(values), labels=labels)
    assert [type(column) for column in columns] == [NumericColumn, MissingColumn][: 1 + is_there]
    if is_there:
        np.testing.assert_array_equal(columns[1].encode(pd.Series(values)), np.isnan(values))


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["$1,200.50", "$30", None], [1200.5, 30, NAN]),
        (["5 %", "12%", "?"], [0.05, 0.12, NAN]),
        (["1,000", "20,000", "-"], [1000, 20000, NAN]),
        (["1,250", "0,126", "-0,500"], [1.25, 0.126, -0.5]),
        (["1.200,50 €", "30 €", "5.000 €"], [1200.5, 30, 5000]),
        (["1,5e-05", "-2,25E+03", "0,5", "3e2", "1.200"], [1.5e-05, -2250, 0.5, 300, 1200]),
        (["1'200.50", "30", "5\u2019000"], [1200.5, 30, 5000]),
        (["₹1,23,456.50", "₹12,34,567", "₹5"], [123456.5, 1234567, 5]),
        (["($1,200.50)", "$(30)", "$7"], [-1200.5, -30, 7]),
        (["\u22123.5", "4", "#DIV/0!"], [-3.5, 4, NAN]),
        (["\u20133.5", "4", "\u2014"], [-3.5, 4, NAN]),
        (["3", "n/a", "4", "\u2013", "n.a."], [3, NAN, 4, NAN, NAN]),
        (["3", " ", "4"], [3, NAN, 4]),
    ],
)
def test_numbers_written_as_text_are_the_numbers(texts, values):
    numbers, cells = pd.Series(values, dtype=float), pd.Series(texts)
    column = fit_column(cells, "a", 0)
    expected = fit_column(numbers, "a", 0)
    assert isinstance(column, NumericColumn)
    np.testing.assert_array_equal(column.encode(cells), expected.encode(numbers))
    np.testing.assert_array_equal(column.encode(numbers), expected.encode(numbers))


@pytest.mark.parametrize(
    ("texts", "other", "held"),
    [
        (["$1,200", "$30"], "€1,200", r"in \$"),
        (["$1,200", "30"], "1,200 USD", r"in \$"),
        (["1.200,50 €", "30 €"], "$30", "in €"),
        (["1,200", "30"], "$30", "without a unit"),
        ([1200.0, 30.0], "30 %", "without a unit"),
        (["5 %", "12 %"], "5", "in %"),
    ],
)
def test_text_in_another_unit_is_refused(texts, other, held):
    column = fit_column(pd.Series(texts), "a", 0)
    cells = pd.Series([texts[1], None, other], dtype=object, name="a")
    message = rf"^Column 'a' held numbers {held} .* holds '{re.escape(other)}' here; convert it"
    with pytest.raises(DataError, match=message):
        column.encode(cells)
    assert np.isfinite(column.encode(cells[:1])).all()


def test_text_without_a_currency_is_in_that_of_the_column():
    column = fit_column(pd.Series(["$5", "$7"]), "a", 0)
    assert column.encode(pd.Series(["7", "$7"])).tolist() == [1, 1]


def test_complex_numbers_are_refused_at_prediction():
    with pytest.raises(DataError, match="'a' holds complex numbers; give real numbers"):
        fit_column(pd.Series([1.0, 2.0]), "a", 0).encode(pd.Series([1 + 2j], name="a"))


def test_long_arrays_that_differ_in_the_middle_are_different_categories():
    cells = pd.Series([np.arange(2000), np.arange(2000)], **OBJECT)
    cells[1][1000] = -1
    assert fit_column(cells, "a", 0).encode(cells).tolist() == [1, 0]


def test_rare_categories_share_one_code_above_the_limit():
    frequent = [f"f{i:03d}" for i in range(MAX_CATEGORIES - 1)]
    cells = pd.Series(frequent * 2 + [f"rare{i}" for i in range(1000)])
    with pytest.warns(UserWarning, match=f"'a' has {1000 + MAX_CATEGORIES - 1} categories"):
        column = fit_column(cells, "a", 0)
    codes = column.encode(cells)
    assert codes.max() == MAX_CATEGORIES - 1
    assert len(np.unique(codes)) == MAX_CATEGORIES
    assert np.unique(codes[-1000:]).tolist() == [MAX_CATEGORIES - 1]
    assert len(column.codes) == MAX_CATEGORIES - 1  # nothing of the rare ones is kept
    assert column.encode(pd.Series(["never seen"])).tolist() == [MAX_CATEGORIES - 1]
