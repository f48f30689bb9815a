"""Text of whole numbers, as numbers or as names."""

import numpy as np
import pandas as pd
import pytest

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.estimator.columns.encodings import CategoryColumn, NumericColumn
from tabicl_linear.estimator.columns.ids import whole_numbers
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor

RNG = np.random.default_rng(0)
NUMBERS = RNG.integers(18, 90, size=2000)
OF_ORDER = (NUMBERS + RNG.normal(size=2000) * 10 > 50).astype(np.int64)
OF_NAMES = ((NUMBERS * 7919 % 13 < 6) ^ (RNG.random(2000) < 0.2)).astype(np.int64)
TEXT = pd.Series(NUMBERS.astype(str))


@pytest.mark.parametrize("dtype", ["object", "str", "string"])
def test_numbers_are_known_by_their_order_and_names_by_themselves(dtype):
    assert whole_numbers(TEXT.astype(dtype), OF_ORDER) == (False, f"{TEXT[0]!r} as a number")
    assert whole_numbers(TEXT.astype(dtype), OF_NAMES) == (True, f"{TEXT[0]!r} as a name")


def test_without_evidence_for_numbers_they_are_names():
    labels = np.random.default_rng(1).integers(3, size=2000)
    result = whole_numbers(TEXT, labels)
    assert result is not None
    assert result.are_names


@pytest.mark.parametrize(
    "cells",
    [
        TEXT[:49],
        pd.Series(NUMBERS),
        pd.Series((NUMBERS / 4).astype(str)),
        pd.Series([f"-{n}" for n in NUMBERS]),
        pd.Series(np.arange(2000).astype(str)),
        TEXT.astype("category"),
        TEXT.replace("42", "none"),
    ],
    ids=["few", "integers", "decimals", "signs", "all different", "categories", "words"],
)
def test_nothing_is_said_of_other_columns(cells):
    assert whole_numbers(cells, OF_NAMES[: len(cells)]) is None


def test_missing_cells_do_not_count():
    cells = TEXT.astype(object).where(NUMBERS % 5 > 0, None)
    result = whole_numbers(cells, OF_NAMES)
    assert result is not None
    assert result.are_names


def test_one_warning_names_columns_and_how_to_overrule():
    frame = pd.DataFrame({"id": TEXT, "age": TEXT, "plain": NUMBERS})
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


@pytest.mark.filterwarnings("ignore:Text is read")
def test_names_predict_better_than_their_order():
    frame = pd.DataFrame({"id": TEXT, "other": RNG.normal(size=2000)})
    as_text, as_numbers = (
        RandomFeatureRidge(trees=False, n_estimators=2)
        .fit(table[:1000], OF_NAMES[:1000])
        .score(table[1000:], OF_NAMES[1000:])
        for table in (frame, frame.assign(id=NUMBERS))
    )
    assert as_text > as_numbers + 0.05
