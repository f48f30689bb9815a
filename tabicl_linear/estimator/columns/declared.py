"""Columns that users declare to be categories."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import BoolArray
from tabicl_linear.estimator.notices import brief, listed

CategoricalFeatures: TypeAlias = (
    Sequence[int] | Sequence[str] | BoolArray | pd.Index | pd.Series | None
)


def are_declared(
    declared: CategoricalFeatures, names: Sequence[Hashable] | None, width: int
) -> BoolArray:
    """Which of `width` columns are declared: by position, by name or by one boolean per column.

    `names` are the names of the columns; None if they have none.

    Raises:
        DataError: A column does not exist, or there are not as many booleans as columns.
    """
    if declared is None:
        return np.zeros(width, dtype=bool)
    # An iterator would be empty at the next fit.
    if isinstance(declared, str | Iterator) or not isinstance(declared, Iterable):
        raise DataError(
            f"categorical_features={declared!r}: give a list of names or positions, or one "
            "boolean per column."
        )
    mask = np.asarray(declared)
    if mask.ndim == 1 and mask.size and all(isinstance(each, bool | np.bool_) for each in mask):
        mask = mask.astype(bool)
    if mask.dtype == bool:
        if mask.shape != (width,):
            raise DataError(
                f"categorical_features is a mask of shape {mask.shape} for {width} columns; "
                "give one boolean per column."
            )
        return mask
    positions = [_position(feature, names or [], width) for feature in declared]
    return np.isin(np.arange(width), positions)


def _position(feature: object, names: Sequence[Hashable], width: int) -> int:
    """The position of a column that is declared by `feature`, its name or position."""
    position = names.index(feature) if feature in names else feature
    is_truth = isinstance(position, bool | np.bool_)  # one truth among positions or names
    if not is_truth and isinstance(position, int | np.integer) and 0 <= position < width:
        return int(position)
    names_or = f"names ({listed(map(brief, names))}) or " if names else ""
    raise DataError(
        f"categorical_features has {brief(feature)}, which is not a column: give {names_or}"
        f"positions from 0 to {width - 1}."
    )
