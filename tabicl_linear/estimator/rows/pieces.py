"""Pieces of a table: checked against the first, and joined."""

from collections.abc import Hashable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_array

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.preprocessor import Table, in_order
from tabicl_linear.estimator.rows.frames import computable, from_other_library
from tabicl_linear.estimator.rows.labels import checked_labels, one_line

Pieces: TypeAlias = Iterator[tuple[Any, npt.NDArray[Any]]]


def checked_pieces(pieces: Iterator[Any]) -> Pieces:
    """The pieces, with frames of pandas or arrays of the same columns, and arrays of labels.

    Raises:
        DataError: One is no pair, its table and its labels are of different lengths, its columns
            are not those of the first, or it cannot be read; the message says which.
        TypeError: A table is sparse.
    """
    columns: list[Hashable] | int | None = None
    for number, piece in enumerate(pieces, start=1):
        if not isinstance(piece, tuple) or len(piece) != 2:
            raise DataError(
                f"The iterator gave a {type(piece).__name__}; it must give pairs (X, y) of a table "
                "and its labels."
            )
        try:
            table, labels = _checked(*piece)
            table = _aligned(table, columns)
        except DataError as error:
            raise DataError(f"Piece {number}: {error}") from error
        if columns is None:
            columns = list(table.columns) if isinstance(table, pd.DataFrame) else table.shape[1]
        yield table, labels


def joined(tables: list[Table]) -> Table:
    """The rows of all pieces, which `checked_pieces` has given.

    Pandas categories become those of all pieces: sorted if those of each piece are, else in the
    order in which they come; ordered ones in their common order.

    Raises:
        DataError: A column holds ordered categories that the pieces order differently, or it
            cannot be computed with (see `computable`).
    """
    if len(tables) == 1:
        return tables[0]
    frames = [computable(table) for table in tables if isinstance(table, pd.DataFrame)]
    if not frames:
        arrays = [np.asarray(table) for table in tables]
        kinds = (array.dtype.kind for array in arrays)
        if len({"number" if kind in "biuf" else kind for kind in kinds}) > 1:
            # NumPy would make text of numbers, and refuses dates beside them.
            arrays = [array.astype(object) for array in arrays]
        return np.concatenate(arrays)
    shared: dict[Hashable, pd.CategoricalDtype] = {}
    for name, dtype in frames[0].dtypes.items():
        dtypes = [frame[name].dtype for frame in frames]
        if any(other != dtype for other in dtypes):
            of_categories = [each for each in dtypes if isinstance(each, pd.CategoricalDtype)]
            if len(of_categories) == len(dtypes):
                shared[name] = _shared(name, of_categories)
    return pd.concat([frame.astype(shared) for frame in frames], ignore_index=True)


def _checked(X: Any, y: Any) -> tuple[Table, npt.NDArray[Any]]:
    table = from_other_library(X)
    if not isinstance(table, pd.DataFrame):
        try:
            # A table without any row is refused where all pieces are.
            table = check_array(
                table, dtype=None, ensure_all_finite=False, ensure_min_samples=0, input_name="X"
            )
        except ValueError as error:
            raise DataError(one_line(error)) from error
    labels = checked_labels(from_other_library(y))
    if len(table) != len(labels):
        raise DataError(f"X has {len(table)} rows and y has {len(labels)}; give a label for each.")
    return table, labels


def _aligned(table: Table, columns: list[Hashable] | int | None) -> Table:
    """The table with the columns of the first piece, of which arrays have a number only."""
    if columns is None:
        return table
    if isinstance(table, pd.DataFrame) != isinstance(columns, list):
        raise DataError("Some pieces are frames and others are not; give all in one form.")
    if isinstance(table, pd.DataFrame) and isinstance(columns, list):
        return in_order(table, columns, "the first piece")
    if table.shape[1] != columns:
        raise DataError(
            f"X has {table.shape[1]} columns and that of the first piece {columns}; give the same "
            "columns in all pieces."
        )
    return table


def _shared(name: Hashable, dtypes: list[pd.CategoricalDtype]) -> pd.CategoricalDtype:
    """A dtype with the categories of all."""
    if all(dtype.ordered for dtype in dtypes):
        return pd.CategoricalDtype(_common_order(name, dtypes), ordered=True)
    categories = list(dict.fromkeys(value for dtype in dtypes for value in dtype.categories))
    each = {str(dtype.categories.dtype) for dtype in dtypes}
    if len(each) == 1 and all(dtype.categories.is_monotonic_increasing for dtype in dtypes):
        categories = list(
            pd.Categorical(categories).categories
        )  # sorts them if they can be compared
    return pd.CategoricalDtype(categories)


def _common_order(name: Hashable, dtypes: list[pd.CategoricalDtype]) -> list[Hashable]:
    """The only order of all categories in which those of each dtype have theirs."""
    below: dict[Hashable, set[Hashable]] = {v: set() for dtype in dtypes for v in dtype.categories}
    for dtype in dtypes:
        for lower, higher in pairwise(dtype.categories):
            below[higher].add(lower)
    try:
        categories = list(TopologicalSorter(below).static_order())
    except CycleError:
        categories = []
    # Without a piece that says which of two neighbours is lower, the order would be a guess.
    if not categories or any(lower not in below[higher] for lower, higher in pairwise(categories)):
        raise DataError(
            f"Column {name!r} holds ordered categories, and pieces do not agree on their order, or "
            "leave it open; give all pieces the same pandas.CategoricalDtype with all categories."
        )
    return categories
