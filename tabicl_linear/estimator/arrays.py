"""NumPy's arrays by what they hold; shapes are in docstrings."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
"""Indices of classes, categories, columns or rows, mostly."""
FloatArray: TypeAlias = npt.NDArray[np.float64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
"""Rows as learners read them, mostly."""
