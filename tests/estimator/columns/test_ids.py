"""Text of whole numbers, as numbers or as names."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.estimator.columns.categorical import CategoryColumn
from tabicl_linear.estimator.columns.ids import count_ids, merged_in_float64, read_whole_numbers_as
from tabicl_linear.estimator.columns.numeric import NumericColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor

RNG = np.random.default_rng(0)
NUMBERS = RNG.integers(18, 90, size=2000)
OF_ORDER = (NUMBERS + RNG.normal(size=2000) * 10 > 50).astype(np.int64)
OF_NAMES = ((NUMBERS * 7919 % 13 < 6) ^ (RNG.random(2000) < 0.2)).astype(np.int64)
TEXT = pd.Series(NUMBERS.astype(str))


@pytest.mark.parametrize("dtype", ["object", "str", "string"])
def test_numbers_are_known_by_their_order_and_names_by_themselves(dtype):
    assert read_whole_numbers_as(TEXT.astype(dtype), OF_ORDER) == (
        "numeric",
        ".#",
        f"{TEXT[0]!r} as a number: their order tells the classes",
    )
    assert read_whole_numbers_as(TEXT.astype(dtype), OF_NAMES) == (
        "categorical",
        "",
        f"{TEXT[0]!r} as a name: each tells more than their order",
    )


def test_without_evidence_for_numbers_they_are_names():
    labels = np.random.default_rng(1).integers(3, size=2000)
    result = read_whole_numbers_as(TEXT, labels)
    assert result is not None
    assert result.kind == "categorical"
    assert result.note.endswith("as a name: order tells nothing")


@pytest.mark.parametrize(
    "cells",
    [
        TEXT[:49],
        pd.Series(NUMBERS),
        pd.Series((NUMBERS / 4).astype(str)),
        pd.Series([f"-{n}" for n in NUMBERS]),
        TEXT.astype("category"),
        TEXT.replace("42", "forty-two"),
    ],
    ids=["few", "integers", "decimals", "signs", "categories", "words"],
)
def test_nothing_is_said_of_other_columns(cells):
    assert read_whole_numbers_as(cells, OF_NAMES[: len(cells)]) is None


def test_numbers_that_nearly_all_differ_stay_numbers_and_are_told():
    with pytest.warns(UserWarning, match=r"'id' \('0' as a number: nearly all differ\)\. A num"):
        columns = TablePreprocessor().fit(
            pd.DataFrame({"id": np.arange(2000).astype(str)}), OF_NAMES
        )
    assert isinstance(columns.columns[0], NumericColumn)


@pytest.mark.parametrize("cell", [None, "?", "none"])
def test_missing_cells_do_not_count(cell):
    cells = TEXT.astype(object).where(NUMBERS % 5 > 0, cell)
    result = read_whole_numbers_as(cells, OF_NAMES)
    assert result is not None
    assert result.kind == "categorical"


def test_what_stands_for_missing_is_told_beside_the_choice_and_blanks_change_nothing():
    frame = pd.DataFrame({"id": TEXT.replace("42", "?"), "age": TEXT + " "})
    with pytest.warns(UserWarning, match=r"'id' \('\d+' as a name: .*, 'age' \('\d+ ' as a name"):
        names = TablePreprocessor().fit(frame, OF_NAMES).columns
    with pytest.warns(UserWarning, match=r"number: their order tells the classes, '\?' as missing"):
        numbers = TablePreprocessor().fit(frame, OF_ORDER).columns
    assert [type(records[0]) for records in (names, numbers)] == [CategoryColumn, NumericColumn]


@pytest.mark.filterwarnings("ignore:Whole numbers tell more")
def test_one_warning_names_columns_and_how_to_overrule():
    frame = pd.DataFrame({"id": TEXT, "age": TEXT, "plain": NUMBERS / 4})
    labels = OF_NAMES
    with pytest.warns(UserWarning, match=r"'id' \('62' as a name|'id' \(") as told:
        columns = TablePreprocessor().fit(frame, labels)
    assert len(told) == 1
    assert "categorical_features" in str(told[0].message)
    kinds = [type(column) for column in columns.columns if column.name == "id"]
    assert kinds[0] is CategoryColumn
    overruled = frame.assign(id=pd.to_numeric(frame["id"]), age=pd.to_numeric(frame["age"]))
    plain = TablePreprocessor().fit(overruled, labels)
    assert {type(column) for column in plain.columns} == {NumericColumn}


@pytest.mark.filterwarnings("ignore:Text is read", "ignore:Whole numbers tell more")
def test_names_predict_better_than_their_order():
    frame = pd.DataFrame({"id": TEXT, "other": RNG.normal(size=2000)})
    as_text, as_numbers = (
        RandomFeatureRidge(trees=False, n_estimators=2)
        .fit(table[:1000], OF_NAMES[:1000])
        .score(table[1000:], OF_NAMES[1000:])
        for table in (frame, frame.assign(id=NUMBERS))
    )
    assert as_text > as_numbers + 0.05


SHOPS = np.random.default_rng(2).permutation(100_000)[:200]
VISITS = np.random.default_rng(3).integers(200, size=2000)
OF_SHOPS = ((VISITS % 7 < 3) ^ (RNG.random(2000) < 0.1)).astype(np.int64)


@pytest.mark.parametrize("dtype", ["int64", "float64", "Int64", "float32"])
def test_a_declared_number_that_holds_ids_is_known_by_its_classes(dtype):
    assert count_ids(pd.Series(SHOPS[VISITS]).astype(dtype), OF_SHOPS) == 200
    of_order = (SHOPS[VISITS] > 50_000).astype(np.int64)
    assert count_ids(pd.Series(SHOPS[VISITS]).astype(dtype), of_order) is None


@pytest.mark.parametrize(
    "cells",
    [
        SHOPS[VISITS] + 0.5,
        np.where(RNG.random(2000) < 0.6, 0, SHOPS[VISITS]),
        RNG.permutation(2000),
        VISITS % 49,
        VISITS > 20,
        SHOPS[VISITS].astype(str),
    ],
    ids=["halves", "mostly nothing", "all different", "few", "booleans", "text"],
)
def test_other_columns_are_not_taken_for_ids(cells):
    assert count_ids(pd.Series(cells), OF_SHOPS) is None


LONG = pd.Series([2**60 + i % 4 for i in range(60)])


@pytest.mark.parametrize(
    "cells",
    [
        *(LONG.astype(dtype) for dtype in ("int64", "uint64", "Int64", "int64[pyarrow]", "object")),
        LONG.astype("Int64").where(LONG.index % 7 > 0),
        LONG.astype(object).where(LONG.index % 7 > 0, None),
        LONG.map(Decimal),
        LONG.astype("str").where(LONG.index % 7 > 0, "?"),
    ],
    ids=[
        *("int64", "uint64", "Int64", "arrow", "objects", "gaps", "objects with gaps", "decimals"),
        "text",
    ],
)
@pytest.mark.filterwarnings("ignore:Text is read in columns 'id':UserWarning")
def test_whole_numbers_that_are_one_in_float64_are_told(cells):
    """In each of these types ids of 19 digits became one number without a word."""
    assert merged_in_float64(cells) == (4, 1)
    frame = pd.DataFrame({"id": cells, "other": range(60)})
    with pytest.warns(UserWarning, match=r"'id' \(4 different .* 1\).*features=\['id'\]"):
        TablePreprocessor().fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TablePreprocessor(["id"]).fit(frame)


@pytest.mark.parametrize(
    "cells",
    [LONG // 256, LONG * 2.0, LONG * 2 - 2**61, LONG[::4], LONG // 4 * 4],
    ids=["shorter", "floats", "small", "one", "one again"],
)
def test_nothing_is_told_of_numbers_that_float64_tells_apart(cells):
    assert merged_in_float64(cells) is None


def test_noise_and_missing_cells_change_nothing():
    noise = np.random.default_rng(4).integers(2, size=2000)
    assert count_ids(pd.Series(SHOPS[VISITS]), noise) is None
    gaps = pd.Series(SHOPS[VISITS]).where(VISITS > 1)
    assert count_ids(gaps, OF_SHOPS) == 198


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_many_columns_of_noise_are_not_taken_for_ids(share):
    """One by one, several of the 60 are."""
    rng = np.random.default_rng(5)
    noise = pd.DataFrame(rng.integers(100, size=(200, 60)))
    labels = (rng.random(200) < share).astype(np.int64)
    assert any(count_ids(cells, labels) for _, cells in noise.items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TablePreprocessor().fit(noise, labels)


def test_the_warning_of_ids_names_column_numbers_and_remedy():
    frame = pd.DataFrame({"shop": SHOPS[VISITS], "n": RNG.normal(size=2000)})
    with pytest.warns(UserWarning, match=r"columns 5 \(200 .*categorical_features=\[5\]"):
        TablePreprocessor().fit(frame.set_axis(pd.Index([5, 7]), axis=1), OF_SHOPS)
    told = r"columns 'shop' \(200 different ones\) of 2,000 rows.*categorical_features=\['shop'\]"
    with pytest.warns(UserWarning, match=told):
        columns = TablePreprocessor().fit(frame, OF_SHOPS).columns
    assert isinstance(columns[0], NumericColumn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TablePreprocessor(["shop"]).fit(frame, OF_SHOPS)
        TablePreprocessor().fit(frame)
