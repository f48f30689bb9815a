"""The paper's protocol: which rows and columns of a table are used, and its folds.

As in the authors' code, every column becomes numbers and rows are shuffled once. Then rare classes,
and rows and columns beyond the caps, are left out at random. The seeds depend only on the table,
so that every model sees the same data.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes
from sklearn.model_selection import StratifiedKFold

from tabicl_linear.errors import DataError

SEED = 42
MIN_ROWS = 100
ROWS, COLUMNS = 0, 1
"""Last word of the seed of a table's choices of rows and of columns."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Protocol:
    """What is used of a table.

    Attributes:
        max_rows: Most rows; None for all.
        max_columns: Most columns besides the target.
        max_classes: Most classes; the most frequent ones are used.
        folds: Folds of the stratified cross-validation.
        seed: Seed of shuffles, caps and folds.
    """

    max_rows: int | None
    max_columns: int = 20
    max_classes: int = 10
    folds: int = 5
    seed: int = SEED


CC18 = Protocol(max_rows=1000)
TABARENA = Protocol(max_rows=None)


@dataclass(frozen=True)
class BenchmarkTable:
    """A table of a benchmark.

    Attributes:
        name: Name of the table, unique in its benchmark.
        openml_id: Its data id at OpenML; None if it has none.
        x: All columns but the target, in float32: numbers, and codes of categories and texts.
            Missing values are NaN.
        categorical: Names of the columns that are declared as categories.
        y: Class labels, as text.
    """

    name: str
    openml_id: int | None
    x: pd.DataFrame
    categorical: tuple[str, ...]
    y: npt.NDArray[np.object_]

    def declared(self) -> pd.DataFrame:
        """The columns, with pandas' type `category` for those declared as categories."""
        present = [name for name in self.categorical if name in self.x]
        return self.x.astype(dict.fromkeys(present, "category"))


def encode(
    frame: pd.DataFrame,
    target: str,
    *,
    name: str,
    openml_id: int | None = None,
) -> BenchmarkTable:
    """Make a table from a frame: categories and texts become codes in the order of categories.

    Raises:
        DataError: The target column does not exist or has missing values; there is no other
            column; or a column cannot be encoded, such as one of lists.
    """
    if target not in frame:
        raise DataError(
            f"The table {name} has no target column {target!r}; name one of its columns as the "
            "target."
        )
    if frame.shape[1] == 1:
        raise DataError(f"The table {name} has no column but its target; leave it out.")
    labels = frame[target]
    absent = int(labels.isna().sum())
    if absent:
        raise DataError(
            f"The target {target!r} of the table {name} is missing in {absent} of {len(frame)} "
            "rows; remove those rows."
        )
    x = frame.drop(columns=target)
    x.columns = pd.Index([str(column) for column in x.columns])
    codes = {column: _codes(cells, str(column), name) for column, cells in x.items()}
    return BenchmarkTable(
        name=name,
        openml_id=openml_id,
        x=pd.DataFrame(codes),
        categorical=tuple(column for column, cells in x.items() if _is_declared(cells)),
        y=labels.astype(str).to_numpy(dtype=object),
    )


def _is_declared(cells: pd.Series) -> bool:
    return isinstance(cells.dtype, pd.CategoricalDtype) or dtypes.is_bool_dtype(cells.dtype)


def _codes(cells: pd.Series, column: str, table: str) -> npt.NDArray[np.float32]:
    try:
        return _numbers(cells)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"The column {column!r} of the table {table} holds neither numbers nor categories "
            f"({error}); leave it out of the table."
        ) from error


def _numbers(cells: pd.Series) -> npt.NDArray[np.float32]:
    """Numbers (of dates, days since 1970) or codes of categories in float32; NaN if missing."""
    if dtypes.is_datetime64_any_dtype(cells.dtype):
        cells = (cells - pd.Timestamp(0, tz=cells.dt.tz)) / pd.Timedelta(days=1)
    if not _is_declared(cells) and not dtypes.is_numeric_dtype(cells.dtype):
        try:
            cells = pd.to_numeric(cells)
        except (ValueError, TypeError):
            cells = cells.astype("category")
    if _is_declared(cells):
        codes = cells.astype("category").cat.codes.to_numpy(np.float32)
        return np.where(codes < 0, np.float32(np.nan), codes)
    return cells.to_numpy(np.float32, na_value=np.nan)


def prepare(table: BenchmarkTable, protocol: Protocol) -> BenchmarkTable:
    """The rows and columns of a table that the protocol uses, with rows shuffled.

    Raises:
        DataError: There are fewer rows than the protocol takes, only one class, or only one class
            with a row for every fold.
    """
    rows = np.random.default_rng(protocol.seed).permutation(len(table.y))
    names, counts = np.unique(table.y, return_counts=True)
    if len(names) > protocol.max_classes:
        # The sort is stable: of equally frequent classes, the first by name are used.
        frequent = names[np.argsort(-counts, kind="stable")[: protocol.max_classes]]
        rows = rows[np.isin(table.y[rows], frequent)]
    if protocol.max_rows is not None and len(rows) > protocol.max_rows:
        rows = rows[_chosen(len(rows), protocol.max_rows, table, protocol.seed, ROWS)]
    columns = np.arange(table.x.shape[1])
    if len(columns) > protocol.max_columns:
        columns = _chosen(len(columns), protocol.max_columns, table, protocol.seed, COLUMNS)
    prepared = replace(table, x=table.x.iloc[rows, columns], y=table.y[rows])
    _check(prepared, protocol, num_classes=len(names))
    return prepared


def folds(table: BenchmarkTable, protocol: Protocol) -> Iterator[tuple[Rows, Rows]]:
    """Yield the positions of context and query rows of a prepared table, fold by fold."""
    splitter = StratifiedKFold(protocol.folds, shuffle=True, random_state=protocol.seed)
    with warnings.catch_warnings():
        # It names no table and comes at every trial; `rare_classes` is said once.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        # The folds depend only on the classes.
        splits = list(splitter.split(np.zeros(len(table.y)), table.y))
    yield from splits


def rare_classes(table: BenchmarkTable, protocol: Protocol) -> str | None:
    """What happens to classes with fewer rows than there are folds; None if there are none."""
    counts = np.unique(table.y, return_counts=True)[1]
    rare = int((counts < protocol.folds).sum())
    if not rare:
        return None
    return (
        f"table {table.name}: classes with fewer than {protocol.folds} rows ({rare} of "
        f"{len(counts)}) are missing in some folds; a query whose class the context lacks is not "
        "scored"
    )


def _chosen(size: int, number: int, table: BenchmarkTable, seed: int, draw: int) -> Rows:
    """Choose `number` of `size` positions uniformly without replacement; returns them sorted."""
    # The seed of a table without an OpenML id comes from the letters of its name.
    identity = [table.openml_id] if table.openml_id is not None else list(table.name.encode())
    rng = np.random.default_rng(np.random.SeedSequence([seed, *identity, draw]))
    return np.sort(rng.choice(size, number, replace=False))


def _check(table: BenchmarkTable, protocol: Protocol, *, num_classes: int) -> None:
    if len(table.y) < MIN_ROWS:
        most, of_classes = protocol.max_classes, ""
        if num_classes > most:
            of_classes = f" of the {most} most frequent of its {num_classes} classes"
        raise DataError(
            f"The table {table.name} has {len(table.y)} rows{of_classes}; the protocol takes "
            f"tables of at least {MIN_ROWS}, so leave it out."
        )
    names, counts = np.unique(table.y, return_counts=True)
    if len(names) < 2:
        raise DataError(
            f"The target of the table {table.name} is constant ({names[0]!r}); name another one, "
            "or leave the table out."
        )
    if np.sort(counts)[-2] < protocol.folds:
        raise DataError(
            f"All but one class of the table {table.name} have fewer than {protocol.folds} rows, "
            f"so that there are no {protocol.folds} stratified folds; leave it out."
        )
