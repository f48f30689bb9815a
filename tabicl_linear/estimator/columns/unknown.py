"""Columns of rows to predict, of whose categories none is known."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import numpy as np
import pandas as pd

from tabicl_linear.estimator.arrays import Float32Array
from tabicl_linear.estimator.columns.categorical import UNSEEN, CategoryColumn
from tabicl_linear.estimator.columns.category_names import category_names, looked_up
from tabicl_linear.estimator.columns.counted_rates import MOST_COUNTED, CountedRateColumn
from tabicl_linear.estimator.columns.ids import MOST_DISTINCT
from tabicl_linear.estimator.columns.preprocessor import Column, Table, TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import MAX_RATES, RateColumn
from tabicl_linear.estimator.notices import brief, listed, warn_user

FEWEST_CELLS = 10
"""Present cells of a column, from which on it is worth a warning that none is known."""
MOST_CHANCE = 0.001
"""Chance of a warning for rows drawn as those of training were."""


def warn_of_unknown(
    preprocessor: TablePreprocessor, table: Table, matrix: Float32Array, num_rows: int
) -> None:
    """Warn of columns all of whose categories are unknown: they may be spelt in another way.

    A new row has an unknown category with a chance of about (categories that one row has) / (rows),
    by Good and Turing, so at most (categories) / (rows). There is no warning where all cells may be
    unknown by that chance, nor of identifiers, which are those of columns of nearly as many
    categories as rows.

    `matrix` is what the preprocessor makes of the table, whose rows are to be predicted, and
    `num_rows` counts those of training.
    """
    suspects = [
        column
        # Not strict: a matrix without a column that varies has one of zeros.
        for column, codes in zip(preprocessor.used, matrix.T, strict=False)
        if isinstance(column, CategoryColumn) and _may_be_unknown(column, codes)
    ]
    if not suspects:  # the table need not be read again
        return
    unknown, frame = list[str](), preprocessor.framed(table)
    for column in suspects:
        categories = _known(column, preprocessor.columns)
        names = category_names(frame.iloc[:, column.position], boolean=column.kind == "boolean")
        present = names[~pd.isna(names)]
        share = len(categories) / num_rows
        # Ids go on where those of training end, though a few of these may occur twice.
        chance = share ** len(present) if 0 < share <= MOST_DISTINCT else 1.0
        is_unknown = np.isnan(looked_up(present, dict.fromkeys(categories, 0.0)))
        if chance <= MOST_CHANCE and is_unknown.all():
            nearest = get_close_matches(present[0], list(categories), n=1, cutoff=0.0)[0]
            unknown.append(f"{brief(column.name)} ({present[0]!r} here, {nearest!r} in training)")
    if unknown:
        warn_user(
            f"No value is known from the training table in columns {listed(unknown)}: all count as "
            "one unknown category. Write them as they were written in training."
        )


def _may_be_unknown(column: CategoryColumn, codes: Float32Array) -> bool:
    """Whether all present cells, and enough of them, have the code of unknown categories."""
    present = codes[~np.isnan(codes)]
    present = present if column.missing is None else present[present != column.missing]
    return len(present) >= FEWEST_CELLS and bool((present == column.other).all())


def _known(column: CategoryColumn, records: Sequence[Column]) -> Collection[str]:
    """All categories of the training rows; none where not all of them are kept."""
    for record in records:
        if record.position != column.position:
            continue
        # Rows that come later add to these, and not to the codes.
        if isinstance(record, CountedRateColumn):
            return record.places if len(record.places) < MOST_COUNTED else ()
        if isinstance(record, RateColumn) and len(record.rates) < MAX_RATES:
            return record.rates
    return column.codes if column.other == UNSEEN else ()
