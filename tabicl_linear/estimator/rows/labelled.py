"""Labelled rows of one table, checked."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_array, check_consistent_length

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.preprocessor import Table
from tabicl_linear.estimator.notices import warn_user
from tabicl_linear.estimator.rows.frames import computable, computable_array, from_other_library
from tabicl_linear.estimator.rows.labels import checked_labels, without_values


class Rows(NamedTuple):
    """A checked frame or array `[rows, columns]`, and a class label for each row."""

    table: Table
    labels: npt.NDArray[Any]

    def part(self, rows: slice) -> "Rows":
        """The rows of a slice."""
        table = self.table
        part = table.iloc[rows] if isinstance(table, pd.DataFrame) else table[rows]
        return Rows(part, self.labels[rows])

    def copied(self) -> "Rows":
        """The same rows in memory of their own, which no caller can change."""
        return Rows(self.table.copy(), self.labels.copy())


def checked_table(X: Any) -> Table:
    """Check a table, and return it as a frame or array that pandas or NumPy can compute with.

    `X` may be an array, a frame of pandas, polars or Arrow, or a nested list.

    Raises:
        DataError: `X` has no row, or cannot be read.
        TypeError: `X` is sparse.
    """
    X = from_other_library(X)
    if isinstance(X, pd.DataFrame):
        table = computable(X)
        if len(table) == 0:
            raise DataError("The table has 0 rows; give at least one.")
        return table
    try:
        array = check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
    except ValueError as error:
        first = X[0] if isinstance(X, list) and X else X
        has_fields = isinstance(X, np.ndarray) and X.dtype.names is not None
        if has_fields or isinstance(first, str | os.PathLike | Iterator | dict):
            reason = f"X is a {type(X).__name__}"
            remedy = (
                "pandas.DataFrame(X) of records, pandas.read_csv(X) of a path, one piece at a time "
                "of an iterator"
            )
        else:
            reason = without_values(error).rstrip(".")
            remedy = "real numbers, text or dates, rows of equal length, or an iterator of pieces "
            remedy += "(iter(pieces) of a list of pairs of X and y)"
        raise DataError(f"{reason}. Give a table: {remedy}.") from error
    if isinstance(X, list | tuple) and array.dtype.kind == "U":
        array = np.array(X, dtype=object)  # NumPy makes text of numbers that stand beside text
    return computable_array(array)


def checked_rows(X: Any, y: Any) -> Rows:
    """A table (see `checked_table`) and its labels.

    Raises:
        DataError: The table or the labels cannot be used.
        ValueError: They are of different lengths.
    """
    return with_labels(checked_table(X), y, X)


def with_labels(table: Table, y: Any, given: Any) -> Rows:
    """A table that has been checked, and its labels; raises what `checked_rows` raises.

    `given` is the table as the user gave it: of other libraries than pandas it has no index, though
    pandas numbers the rows of what it is converted to.
    """
    if y is None:
        # scikit-learn's checks expect these words.
        raise DataError("This estimator requires y to be passed, but the target y is None.")
    if isinstance(y, str):
        raise DataError(
            f"y={str(y)!r} names a column, as only files take it: give the table without that "
            f"column, and table[{str(y)!r}] as y; the label of a single row in a list, "
            f"[{str(y)!r}]."
        )
    labels = checked_labels(y)
    check_consistent_length(table, labels)
    if isinstance(given, pd.DataFrame) and isinstance(y, pd.Series | pd.DataFrame):
        _warn_of_other_order(given.index, y.index)
    return Rows(table, labels)


def _warn_of_other_order(rows: pd.Index, labels: pd.Index) -> None:
    """Warn if a table and its labels have the same index in different orders."""
    if rows.equals(labels) or not (rows.is_unique and labels.is_unique):
        return
    if labels.isin(rows).all():
        warn_user(
            "X and y have the same index in different orders, and rows are matched by position, as "
            "scikit-learn does: give y.loc[X.index] if the index says what belongs together, or "
            "y.to_numpy() if the order does."
        )
