"""Columns of rows to predict, of whose numbers most are in another unit than those of training."""

import numpy as np

from tabicl_linear.estimator.arrays import Float32Array, FloatArray
from tabicl_linear.estimator.columns.numeric import NumericColumn, values_of
from tabicl_linear.estimator.columns.preprocessor import Table, TablePreprocessor
from tabicl_linear.estimator.columns.unknown import FEWEST_CELLS
from tabicl_linear.estimator.notices import brief, listed, warn_user

TIMES_AS_FAR = 10.0
"""How many times as far from zero, or as near, as all training values: no row like those is."""


def warn_of_far_off(preprocessor: TablePreprocessor, table: Table, matrix: Float32Array) -> None:
    """Warn of columns most of whose numbers are far from all of training, as in another unit.

    Percent in place of shares, milliseconds of seconds or a decimal comma that was read as one of
    thousands would be predicted as if they were the largest number of training. Of dates nothing
    is said: those to predict come later as a rule.

    `matrix` is what the preprocessor makes of the table, whose rows are to be predicted.
    """
    # Not strict: a matrix without a column that varies has one of zeros.
    suspects = [
        column
        for column, scores in zip(preprocessor.used, matrix.T, strict=False)
        if isinstance(column, NumericColumn)
        and column.part is None
        and _are_outside(column, scores)
    ]
    if not suspects:  # the table need not be read again
        return
    descriptions, frame = list[str](), preprocessor.framed(table)
    for column in suspects:
        values = values_of(frame.iloc[:, column.position], column.text_format, None)
        middle = float(np.nanmedian(values))
        if _is_far_off(column, middle):
            span = f"{column.low:.6g} to {column.high:.6g} in training"
            descriptions.append(f"{brief(column.name)} (about {middle:.1g} here, {span})")
    if descriptions:
        warn_user(
            f"Most numbers are more than {TIMES_AS_FAR:g} times as large, or as small, as all of "
            f"training in columns {listed(descriptions)}: they count as its largest, or smallest. "
            "Give numbers in the unit and notation of the training table."
        )


def _are_outside(column: NumericColumn, scores: Float32Array) -> bool:
    """Whether most present numbers, and enough of them, are on one side of those of training."""
    present = scores[~np.isnan(scores)]
    if len(present) < FEWEST_CELLS or column.logarithms is not None:
        return False
    low, high = -column.mean / column.std, (1 - column.mean) / column.std
    return bool(max((present < low).sum(), (present > high).sum()) > len(present) / 2)


def _is_far_off(column: NumericColumn, middle: float) -> bool:
    ends: FloatArray = np.abs([column.low, column.high])
    nearest = ends.min() if column.low * column.high > 0 else 0.0
    return bool(abs(middle) / TIMES_AS_FAR > ends.max() or abs(middle) * TIMES_AS_FAR < nearest)
