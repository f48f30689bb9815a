"""Numbers of short dtypes: the decimals that float16 and float32 stand for."""

from typing import Any

import numpy as np
import pandas as pd

from tabicl_linear.estimator.arrays import FloatArray

_SHORT_FLOATS: dict[str, Any] = {
    **dict.fromkeys(("float16", "halffloat[pyarrow]"), np.float16),
    **dict.fromkeys(("float32", "float[pyarrow]"), np.float32),
}
"""By the name of a dtype of NumPy, pandas or Arrow in small letters."""


def decimals(values: FloatArray, dtype: Any) -> FloatArray:
    """The decimals of few digits that values of a dtype stand for, so 5.1 in float32 is 5.1.

    Learners compare values with those of the context, so that 5.0999999 and 5.1 may be told apart.
    A float64 table and the same table in float32 would then get different predictions. Values of
    wide dtypes stay as they are, and so do those that no decimal of so few digits (3 in float16, 6
    in float32) is rounded to.
    """
    dense = dtype.subtype if isinstance(dtype, pd.SparseDtype) else dtype
    kind = _SHORT_FLOATS.get(str(dense).lower())
    if kind is None:
        return values
    present = np.isfinite(values) & (values != 0)
    digits = np.finfo(kind).precision
    places = np.zeros_like(values)
    places[present] = digits - 1 - np.floor(np.log10(np.abs(values[present])))
    # Powers of ten are exact up to 22, so dividing by them gives the float64 next to the decimal.
    up, down = 10.0 ** places.clip(0), 10.0 ** (-places).clip(0)
    rounded = np.rint(values * up / down) * down / up
    with np.errstate(over="ignore", invalid="ignore"):
        stands_for = present & (rounded.astype(kind) == values.astype(kind))
    return np.where(stands_for, rounded, values)
