"""Numbers of fewer bits than float64, as the decimals that they were rounded from."""

from typing import Any

import numpy as np
import numpy.typing as npt

_KINDS: dict[str, Any] = {
    "float16": np.float16,
    "halffloat[pyarrow]": np.float16,
    "float32": np.float32,
    "float[pyarrow]": np.float32,
}
"""By the name of a dtype of NumPy, pandas or Arrow, in small letters."""


def decimals(values: npt.NDArray[np.float64], dtype: Any) -> npt.NDArray[np.float64]:
    """The decimals of few digits that values of a dtype stand for, so 5.1 in float32 is 5.1.

    Learners compare values with those of the context, so that 5.0999999 and 5.1 may be told apart.
    A float64 table and the same table in float32 would then get different predictions.

    Args:
        values: What the dtype holds, widened.
        dtype: Where they come from. Those of wide dtypes are returned as they are, and so are
            values that no decimal of so few digits (3 in float16, 6 in float32) is rounded to.
    """
    kind = _KINDS.get(str(dtype).lower())
    if kind is None:
        return values
    present = np.isfinite(values) & (values != 0)
    digits = np.finfo(kind).precision
    places = np.zeros(len(values))
    places[present] = digits - 1 - np.floor(np.log10(np.abs(values[present])))
    # Powers of ten are exact up to 22, so dividing by them gives the float64 next to the decimal.
    up, down = 10.0 ** places.clip(0), 10.0 ** (-places).clip(0)
    rounded = np.rint(values * up / down) * down / up
    with np.errstate(over="ignore", invalid="ignore"):
        stands_for = present & (rounded.astype(kind) == values.astype(kind))
    return np.where(stands_for, rounded, values)
