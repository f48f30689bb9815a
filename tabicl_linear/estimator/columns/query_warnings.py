"""Warnings about rows to predict that are written differently from the training rows."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import numpy as np
import pandas as pd

from tabicl_linear.estimator.arrays import Float32Array, FloatArray
from tabicl_linear.estimator.columns.categorical import UNSEEN, CategoryColumn
from tabicl_linear.estimator.columns.category_names import category_names, looked_up
from tabicl_linear.estimator.columns.counted_rates import MOST_COUNTED, CountedRateColumn
from tabicl_linear.estimator.columns.ids import MOST_DISTINCT
from tabicl_linear.estimator.columns.numeric import NumericColumn, values_of
from tabicl_linear.estimator.columns.preprocessor import Column, Table, TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import MAX_RATES, RateColumn
from tabicl_linear.estimator.notices import brief, listed, warn_user

FEWEST_CELLS = 10
"""With fewer present cells, a column gives no reason for a warning."""
MOST_CHANCE = 0.001
"""Chance of a warning about unknown categories for rows drawn in the same way as training rows."""
TIMES_AS_FAR = 10.0
"""A warning needs numbers this many times farther from zero, or nearer, than in training."""


def warn_of_queries(
    preprocessor: TablePreprocessor, table: Table, matrix: Float32Array, num_rows: int
) -> None:
    """Warn of columns without a known category, and of numbers far from all training values.

    Args:
        preprocessor: Fitted to the training rows.
        table: Rows to predict.
        matrix: The same rows as encoded by the preprocessor.
        num_rows: Number of training rows.
    """
    # Not strict: if no column varies, the matrix has a column of zeros without a record.
    suspects = [
        column
        for column, codes in zip(preprocessor.used, matrix.T, strict=False)
        if _may_be_unknown(column, codes) or _are_outside(column, codes)
    ]
    if not suspects:  # the table need not be read again
        return
    frame, unknown, far_off = preprocessor.framed(table), list[str](), list[str]()
    for column in suspects:
        cells = frame.iloc[:, column.position]
        if isinstance(column, CategoryColumn):
            unknown += _unknown(column, cells, preprocessor.columns, num_rows)
        elif isinstance(column, NumericColumn):
            far_off += _far_off(column, cells)
    if unknown:
        warn_user(
            f"No value is known from the training table in columns {listed(unknown)}: all count as "
            "one unknown category. Write them as they were written in training."
        )
    if far_off:
        warn_user(
            f"Most numbers are more than {TIMES_AS_FAR:g} times as large, or as small, as all of "
            f"training in columns {listed(far_off)}: they count as its largest, or smallest. "
            "Give numbers in the unit and notation of the training table."
        )


def _may_be_unknown(column: Column, codes: Float32Array) -> bool:
    """Whether all present cells have the code of unknown categories, and there are enough."""
    if not isinstance(column, CategoryColumn):
        return False
    present = codes[~np.isnan(codes)]
    present = present if column.missing is None else present[present != column.missing]
    return len(present) >= FEWEST_CELLS and bool((present == column.other).all())


def _unknown(
    column: CategoryColumn, cells: pd.Series, records: Sequence[Column], num_rows: int
) -> list[str]:
    """The column for a message, if no category is known and chance does not explain that.

    By Good and Turing, a new row has an unknown category with a chance of about the number of
    categories that occur once over the number of rows, so at most (categories) / (rows). There is
    no message if this chance explains that all cells are unknown, nor for identifiers: columns
    with nearly as many categories as rows.
    """
    categories = _training_categories(column, records)
    names = category_names(cells, boolean=column.kind == "boolean")
    present = names[~pd.isna(names)]
    share = len(categories) / num_rows
    # New rows have new identifiers, even if a few of the training rows share one.
    chance = share ** len(present) if 0 < share <= MOST_DISTINCT else 1.0
    is_unknown = np.isnan(looked_up(present, dict.fromkeys(categories, 0.0)))
    if chance > MOST_CHANCE or not is_unknown.all():
        return []
    nearest = get_close_matches(present[0], list(categories), n=1, cutoff=0.0)[0]
    return [f"{brief(column.name)} ({present[0]!r} here, {nearest!r} in training)"]


def _training_categories(column: CategoryColumn, records: Sequence[Column]) -> Collection[str]:
    """All categories of the training rows; empty if not all of them have been kept."""
    for record in records:
        if record.position != column.position:
            continue
        # Later rows add categories to these records, but not to the codes.
        if isinstance(record, CountedRateColumn):
            return record.places if len(record.places) < MOST_COUNTED else ()
        if isinstance(record, RateColumn) and len(record.rates) < MAX_RATES:
            return record.rates
    return column.codes if column.other == UNSEEN else ()


def _are_outside(column: Column, scores: Float32Array) -> bool:
    """Whether most present numbers are on one side of all training values, and there are enough.

    Dates do not count: those to predict usually come later.
    """
    if not isinstance(column, NumericColumn) or column.part is not None:
        return False
    present = scores[~np.isnan(scores)]
    if len(present) < FEWEST_CELLS or column.logarithms is not None:
        return False
    low, high = -column.mean / column.std, (1 - column.mean) / column.std
    return bool(max((present < low).sum(), (present > high).sum()) > len(present) / 2)


def _far_off(column: NumericColumn, cells: pd.Series) -> list[str]:
    """The column for a message, if most of its numbers are far from all training values.

    Percent instead of shares, milliseconds instead of seconds, or a decimal comma that was read as
    a separator of thousands would all be predicted like the largest training value.
    """
    middle = float(np.nanmedian(values_of(cells, column.text_format, None)))
    ends: FloatArray = np.abs([column.low, column.high])
    nearest = ends.min() if column.low * column.high > 0 else 0.0
    if not (abs(middle) / TIMES_AS_FAR > ends.max() or abs(middle) * TIMES_AS_FAR < nearest):
        return []
    span = f"{column.low:.6g} to {column.high:.6g} in training"
    return [f"{brief(column.name)} (about {middle:.1g} here, {span})"]
