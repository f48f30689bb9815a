"""Labelled rows, checked: of one table, of the first pieces, or of a file."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_array, check_consistent_length

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.preprocessor import Table
from tabicl_linear.estimator.rows.frames import computable, computable_array, from_other_library
from tabicl_linear.estimator.rows.labels import checked_labels, one_line
from tabicl_linear.estimator.rows.pieces import Pieces, joined
from tabicl_linear.estimator.rows.table_file import TableFile, no_rows

FIRST_ROWS = 50_000
"""Columns are learnt from the first pieces that have this many rows together."""


class Rows(NamedTuple):
    """Rows and their classes.

    Attributes:
        table: Frame or array `[rows, columns]` that can be computed with.
        labels: Class label of each row, of one type.
    """

    table: Table
    labels: npt.NDArray[Any]

    def some(self, which: slice) -> "Rows":
        """Some of the rows."""
        table = self.table
        some = table.iloc[which] if isinstance(table, pd.DataFrame) else table[which]
        return Rows(some, self.labels[which])


class RowsInPieces(NamedTuple):
    """Rows of a file or an iterator.

    Attributes:
        pieces: Frames without the target, and their labels.
        classes: All class labels, sorted; None where they are not known beforehand.
        num_rows: How many rows there are; None as well.
    """

    pieces: Pieces
    classes: npt.NDArray[Any] | None = None
    num_rows: int | None = None


def checked_table(X: Any, whose: str) -> Table:
    """A table as a frame or array that can be computed with.

    It may be an array, a frame of pandas, polars or Arrow, or a nested list. Messages say `whose`.

    Raises:
        DataError: There is no row, or it cannot be read.
        TypeError: It is sparse.
    """
    X = from_other_library(X)
    if isinstance(X, pd.DataFrame):
        table = computable(X)
        if len(table) == 0:
            raise DataError("The table has 0 rows; give at least one.")
        return table
    try:
        array = check_array(X, dtype=None, ensure_all_finite=False, estimator=whose, input_name="X")
    except ValueError as error:
        raise DataError(one_line(error)) from error
    return computable_array(array)


def checked_rows(X: Any, y: Any, whose: str) -> Rows:
    """A table (see `checked_table`) and its labels.

    Raises:
        DataError: The table or the labels cannot be used.
        ValueError: They are of different lengths.
    """
    table = checked_table(X, whose)
    if y is None:
        # In the words that scikit-learn's checks know.
        raise DataError(
            f"This {whose} estimator requires y to be passed, but the target y is None."
        )
    labels = checked_labels(from_other_library(y))
    check_consistent_length(table, labels)
    return Rows(table, labels)


def first_rows(pieces: Pieces) -> Rows:
    """The first pieces joined until they have `FIRST_ROWS` rows; the others are left.

    Raises:
        DataError: There is no piece, or the pieces cannot be joined.
    """
    tables, labels, count = list[Any](), list[npt.NDArray[Any]](), 0
    for X, y in pieces:
        tables.append(X)
        labels.append(y)
        count += len(y)
        if count >= FIRST_ROWS:
            break
    if not tables:
        raise DataError("The iterator gave no piece; give at least one pair (X, y).")
    return Rows(checked_table(joined(tables), "classifier"), joined_labels(labels))


def joined_rows(first: Rows, others: Rows) -> Rows:
    """Rows and then others, in the form of the first: a frame, or an array.

    Raises:
        DataError: They cannot be joined; see `joined`.
    """
    table = others.table
    if isinstance(first.table, pd.DataFrame) and not isinstance(table, pd.DataFrame):
        table = pd.DataFrame(table, columns=first.table.columns)
    elif isinstance(table, pd.DataFrame) and not isinstance(first.table, pd.DataFrame):
        table = table.to_numpy()
    labels = joined_labels([first.labels, others.labels])
    return Rows(checked_table(joined([first.table, table]), "classifier"), labels)


def joined_labels(labels: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Labels of all pieces, of one type; NumPy would make text of numbers among texts."""
    if len({part.dtype.kind for part in labels}) > 1:
        labels = [part.astype(object) for part in labels]
    return checked_labels(np.concatenate(labels))


def rows_of_file(path: Path, target: Any) -> RowsInPieces:
    """The rows of a CSV, TSV or Parquet file, without the target: the column of the labels.

    Raises:
        DataError: The file cannot be read, has no such column, no other or no row, or labels are
            missing.
    """
    file = TableFile(path)
    if not isinstance(target, str):
        raise DataError(f"y={target!r}: for a file, give the name of the column with the labels.")
    column = file.labels(target)
    absent = int(column.isna().sum())
    if absent:
        raise DataError(
            f"Target column {target!r} of {path} is missing in {absent} of {len(column)} "
            "rows; remove those rows."
        )
    if len(column) == 0:
        raise no_rows(file.name)
    names = [name for name in file.columns if name != target]
    if not names:
        raise DataError(f"{path} has no column besides the target {target!r}; add some.")
    classes, codes = np.unique(checked_labels(column), return_inverse=True)

    def pieces() -> Pieces:
        start = 0
        for table in file.pieces(names):
            yield table, classes[codes[start : start + len(table)]]
            start += len(table)

    return RowsInPieces(pieces(), classes, len(column))
