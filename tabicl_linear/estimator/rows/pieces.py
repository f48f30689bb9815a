"""Rows in pieces, from a file or an iterator: checks them against the first, and joins them."""

from collections.abc import Hashable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_float_dtype

from tabicl_linear.errors import DataError, counted, one_line
from tabicl_linear.estimator.columns.cells import decimals, numbers
from tabicl_linear.estimator.columns.preprocessor import Table, in_order
from tabicl_linear.estimator.columns.reading import PLAIN_NUMBERS
from tabicl_linear.estimator.notices import brief
from tabicl_linear.estimator.rows.frames import computable
from tabicl_linear.estimator.rows.labelled import Rows, checked_rows
from tabicl_linear.estimator.rows.labels import checked_labels, labels_of_file
from tabicl_linear.estimator.rows.table_file import TableFile

FIRST_ROWS = 50_000
"""Columns are learnt from the first pieces, as many as have this number of rows together."""

Pieces: TypeAlias = Iterator[Rows]


def checked_pieces(pieces: Iterator[Any]) -> Pieces:
    """The pieces of an iterator of pairs (X, y), all with the columns of the first.

    Pieces without rows are left out.

    Raises:
        DataError: A piece is not a pair, its table and labels differ in length, its columns are not
            those of the first, or it cannot be read; the message says which piece.
        TypeError: A table is sparse.
    """
    first: Table | None = None
    for number, piece in enumerate(pieces, start=1):
        if not isinstance(piece, tuple) or len(piece) != 2:
            raise DataError(
                f"The iterator gave a {type(piece).__name__}; it must give pairs (X, y) of a table "
                "and its labels."
            )
        X, y = piece
        if np.size(y) == 0 and len(X) == 0:
            continue
        try:
            table, labels = checked_rows(X, y)
            table = table if first is None else _aligned(table, first)
        except ValueError as error:
            raise DataError(f"Piece {number}: {error}") from error
        first = table[:0] if first is None else first
        # Copied, since a generator may reuse the arrays for the next piece.
        yield Rows(table, labels).copied()


def first_rows(pieces: Pieces) -> Rows:
    """Join the first pieces until they have `FIRST_ROWS` rows; later ones stay in the iterator.

    Raises:
        DataError: There is no piece, or the pieces cannot be joined.
    """
    first, count = list[Rows](), 0
    for rows in pieces:
        first.append(rows)
        count += len(rows.labels)
        if count >= FIRST_ROWS:
            break
    if not first:
        raise DataError("The iterator gave no piece; give at least one pair (X, y).")
    return _together(first)


def joined_rows(first: Rows, others: Rows) -> Rows:
    """Both rows, one after the other, in the form of the first: a frame or an array."""
    table = others.table
    if isinstance(first.table, pd.DataFrame) and not isinstance(table, pd.DataFrame):
        table = pd.DataFrame(table, columns=first.table.columns)
    elif isinstance(table, pd.DataFrame) and not isinstance(first.table, pd.DataFrame):
        table = table.to_numpy()
    return _together([first, Rows(table, others.labels)])


def _together(parts: list[Rows]) -> Rows:
    return Rows(joined([part.table for part in parts]), joined_labels([p.labels for p in parts]))


def joined_labels(labels: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The labels of all pieces, checked; NumPy alone would turn numbers among texts into text."""
    if len({part.dtype.kind for part in labels}) > 1:
        labels = [part.astype(object) for part in labels]
    return checked_labels(np.concatenate(labels))


def rows_of_file(path: Path, target: Any) -> tuple[Pieces, npt.NDArray[Any], int]:
    """The pieces of a CSV, TSV or Parquet file, its class labels (sorted) and its number of rows.

    `target` is the name of the column with the labels.

    Raises:
        DataError: The file cannot be read, has no such column, no other column or no row; or labels
            are missing.
    """
    file = TableFile(path)
    if not isinstance(target, str):
        raise DataError(
            f"y={one_line(brief(target))}: for a file, give the name of the column with the labels."
        )
    column = file.labels(target)
    file.check_rows(len(column))
    names = [name for name in file.columns if name != target]
    if not names:
        raise DataError(f"{path} has no column besides the target {brief(target)}; add some.")
    classes, codes = np.unique(labels_of_file(column, file.name), return_inverse=True)

    def pieces() -> Pieces:
        start = 0
        for table in file.pieces(names):
            yield Rows(computable(table), classes[codes[start : start + len(table)]])
            start += len(table)

    return pieces(), classes, len(column)


def joined(tables: list[Table]) -> Table:
    """The tables of all pieces as one.

    A categorical column gets the categories of all pieces: sorted if those of each piece are, else
    in the order in which they come. Ordered categories get their common order. Floats of several
    types become the decimals that they stand for, which cannot be told once they are in the longest
    type.

    Raises:
        DataError: A column holds ordered categories that the pieces order differently.
    """
    if len(tables) == 1:
        return tables[0]
    frames = [table for table in tables if isinstance(table, pd.DataFrame)]
    if not frames:
        return _joined_arrays([np.asarray(table) for table in tables])
    frames = [frame.copy(deep=False) for frame in frames]
    for name in frames[0].columns:
        dtypes = [frame[name].dtype for frame in frames]
        if all(dtype == dtypes[0] for dtype in dtypes):
            continue
        if all(isinstance(dtype, pd.CategoricalDtype) for dtype in dtypes):
            shared = _shared(name, dtypes)
            for frame in frames:
                frame[name] = frame[name].astype(shared)
        else:
            for frame in frames:
                if is_float_dtype(frame[name].dtype):
                    frame[name] = numbers(frame[name], PLAIN_NUMBERS.text_format)
    return pd.concat(frames, ignore_index=True)


def _joined_arrays(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The arrays of all pieces as one; see `joined` for floats of several types."""
    if len({array.dtype for array in arrays}) > 1:
        arrays = [
            decimals(array.astype(np.float64), array.dtype) if array.dtype.kind == "f" else array
            for array in arrays
        ]
    kinds = {"number" if array.dtype.kind in "biuf" else array.dtype.kind for array in arrays}
    if len(kinds) > 1:
        # As objects: NumPy would turn numbers into text, and refuse dates or make them integers.
        arrays = [pd.DataFrame(array).astype(object).to_numpy() for array in arrays]
    return np.concatenate(arrays)


def _aligned(table: Table, first: Table) -> Table:
    """The table with its columns in the order of the first piece; arrays need as many columns."""
    if isinstance(table, pd.DataFrame) and isinstance(first, pd.DataFrame):
        return in_order(table, list(first.columns), "the first piece")
    if isinstance(table, pd.DataFrame) or isinstance(first, pd.DataFrame):
        raise DataError("Some pieces are frames and others are not; give all in one form.")
    if table.shape[1] != first.shape[1]:
        raise DataError(
            f"X has {counted(table.shape[1], 'column')} and that of the first piece "
            f"{first.shape[1]}; give the same columns in all pieces."
        )
    return table


def _shared(name: Hashable, dtypes: list[pd.CategoricalDtype]) -> pd.CategoricalDtype:
    """A dtype with the categories of all dtypes; see `joined` for their order."""
    if all(dtype.ordered for dtype in dtypes):
        return pd.CategoricalDtype(_common_order(name, dtypes), ordered=True)
    categories = list(dict.fromkeys(value for dtype in dtypes for value in dtype.categories))
    types = {str(dtype.categories.dtype) for dtype in dtypes}
    if len(types) == 1 and all(dtype.categories.is_monotonic_increasing for dtype in dtypes):
        categories = pd.Categorical(categories).categories.tolist()  # sorted if they compare
    return pd.CategoricalDtype(categories)


def _common_order(name: Hashable, dtypes: list[pd.CategoricalDtype]) -> list[Hashable]:
    """The order of all categories that agrees with the order in each dtype, if there is only one.

    Raises:
        DataError: There is none, or more than one.
    """
    below: dict[Hashable, set[Hashable]] = {v: set() for dtype in dtypes for v in dtype.categories}
    for dtype in dtypes:
        for lower, higher in pairwise(dtype.categories):
            below[higher].add(lower)
    try:
        categories = list(TopologicalSorter(below).static_order())
    except CycleError:
        categories = []
    # If no piece says which of two neighbours is lower, the order would be a guess.
    if not categories or any(lower not in below[higher] for lower, higher in pairwise(categories)):
        raise DataError(
            f"Column {brief(name)} holds ordered categories, and pieces do not agree on their "
            "order, or leave it open; give all pieces the same pandas.CategoricalDtype with all "
            "categories."
        )
    return categories
