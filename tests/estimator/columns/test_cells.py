import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabicl_linear.estimator.columns.cells import are_missing, decimals, numbers

WIDTHS = [(np.float16, 3, 4), (np.float32, 6, 30)]
"""Type, digits that it keeps, and powers of ten well within its range."""


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pd.Series([1.0, np.nan, np.inf, -np.inf]), [0, 1, 1, 1]),
        (pd.Series([1, pd.NA], dtype="Int64"), [0, 1]),
        (
            pd.Series([None, pd.NA, np.nan, pd.NaT, "", "nan", "NaN", 0], dtype=object),
            [1] * 6 + [0] * 2,
        ),
        (pd.Series(["", "nan", "x", None]), [1, 1, 0, 1]),
        (pd.Series(["", "nan", "x", None], dtype="category"), [1, 1, 0, 1]),
        (pd.Series([pd.NaT, pd.Timestamp(0)]), [1, 0]),
        (pd.Series([[1], {"a": 1}, None], dtype=object), [0, 0, 1]),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_missing(cells, expected):
    assert are_missing(cells).astype(int).tolist() == expected


@pytest.mark.parametrize(("kind", "digits", "power"), WIDTHS)
@given(data=st.data())
def test_decimals_of_few_digits_come_back(kind, digits, power, data):
    digit = st.integers(-(10**digits) + 1, 10**digits - 1)
    exponent = st.integers(-power, power - digits)
    text = f"{data.draw(digit)}e{data.draw(exponent)}"
    wide = np.array([kind(text)], dtype=np.float64)
    # Powers of ten beyond 22 are not exact.
    np.testing.assert_allclose(decimals(wide, np.dtype(kind)), float(text), rtol=4e-16)


@pytest.mark.parametrize(("kind", "digits", "power"), WIDTHS)
@given(data=st.data())
def test_values_move_by_less_than_their_own_rounding(kind, digits, power, data):
    value = data.draw(st.floats(width=np.finfo(kind).bits))
    wide = np.array([value])
    np.testing.assert_array_equal(decimals(wide, np.dtype(kind)).astype(kind), wide.astype(kind))


@given(st.integers(-(2**24), 2**24))
def test_whole_numbers_stay(value):
    wide = np.array([value], dtype=np.float64)
    assert decimals(wide, np.dtype(np.float32)) == wide


@pytest.mark.parametrize(
    "dtype",
    ["float16", "float32", "Float32", pd.ArrowDtype(pa.float16()), pd.ArrowDtype(pa.float32())],
    ids=str,
)
def test_a_column_of_fewer_bits_is_the_same_column(dtype):
    wide = np.array([5.1, 0.2, -3.0, np.nan])
    short = wide.astype(np.float16 if "16" in str(dtype) or "half" in str(dtype) else np.float32)
    cells = pd.Series(short).astype(dtype)
    np.testing.assert_array_equal(numbers(cells, "."), wide)


def test_wide_values_are_returned_as_they_are():
    wide = np.array([5.1, np.float32(5.1)])
    for dtype in (wide.dtype, "Float64", "double[pyarrow]", "int64"):
        assert decimals(wide, dtype) is wide
