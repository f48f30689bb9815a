"""The development tables: real tables on which recipes are chosen, and their fixed splits.

A folder has `index.csv` (columns name, file, target_column) and a parquet file for each table. The
environment variable `TABICL_LINEAR_TABLES` names the default folder. There are two protocols: one
for small tables, and one for folders of larger ones.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import StratifiedShuffleSplit

from tabicl_linear.errors import ConfigError, DataError

VARIABLE = "TABICL_LINEAR_TABLES"
INDEX = "index.csv"
COLUMNS = ("name", "file", "target_column")
SPLITS = 2
SEED = 0

Rows = npt.NDArray[np.int64]


class Protocol(NamedTuple):
    """How tables are divided and scored.

    Attributes:
        name: Its name in results.
        sizes: Returns the numbers of context and query rows of a table from its number of rows.
        is_macro: Whether ROC-AUC averages all classes equally; otherwise each is weighted by its
            rows.
    """

    name: str
    sizes: Callable[[int], tuple[int, int]]
    is_macro: bool


def _few(rows: int) -> tuple[int, int]:
    """Sizes of at most 800 context and 2,000 query rows; up to 1,600 rows are halved."""
    return min(800, rows // 2), min(2000, rows - 800 if rows > 1600 else rows // 2)


def _many(rows: int) -> tuple[int, int]:
    """Sizes of at most 5,000 context rows (and two thirds of the table) and 3,000 query rows."""
    context = min(5000, rows * 2 // 3)
    return context, min(3000, rows - context)


def _with_context(protocol: Protocol, rows: int) -> Protocol:
    """Return a protocol with at most `rows` context rows and as many query rows as before."""

    def sizes(table_rows: int) -> tuple[int, int]:
        context, queries = protocol.sizes(table_rows)
        return min(context, rows), queries

    return protocol._replace(name=f"{protocol.name}, {rows} context rows", sizes=sizes)


SMALL = Protocol("small", _few, is_macro=False)
LARGE = Protocol("large", _many, is_macro=True)


@dataclass(frozen=True)
class Table:
    """A raw table, including missing values and texts.

    Attributes:
        name: Name of the table, unique in a folder.
        x: All columns except the target.
        y: Class labels, as texts.
        checksum: First digits of the SHA-256 of its file.
        protocol: How the table is divided and scored.
    """

    name: str
    x: pd.DataFrame
    y: npt.NDArray[np.object_]
    checksum: str
    protocol: Protocol = SMALL

    def splits(self) -> list[tuple[Rows, Rows]]:
        """Positions of context and query rows, for each of the stratified splits.

        Raises:
            DataError: A class has a single row, or there are more classes than rows of a part.
        """
        context, queries = self.protocol.sizes(len(self.y))
        splitter = StratifiedShuffleSplit(
            SPLITS, train_size=context, test_size=queries, random_state=SEED
        )
        try:
            return list(splitter.split(self.x, self.y))
        except ValueError as error:
            raise DataError(
                f"The table {self.name} has no stratified splits of {context} context and "
                f"{queries} query rows: {str(error).rstrip('.')}. Leave out the table (--without) "
                "or the rows of its rare classes."
            ) from error


def with_context_rows(tables: list[Table], rows: int | None) -> list[Table]:
    """Return the tables with at most `rows` context rows; as they are if it is None.

    Raises:
        ConfigError: Fewer than two rows.
    """
    if rows is None:
        return tables
    if rows < 2:
        raise ConfigError(f"--context-rows {rows}: give at least 2.")
    return [replace(table, protocol=_with_context(table.protocol, rows)) for table in tables]


def folder_from_environment() -> Path | None:
    """The folder that the environment variable names; None if it is not set."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def load_tables(
    folder: Path | None = None,
    names: Sequence[str] | None = None,
    protocol: Protocol = SMALL,
) -> list[Table]:
    """The tables of a folder, in the order of its index.

    Args:
        folder: Folder of the tables; that of the environment variable if left out.
        names: Load only these tables.
        protocol: Protocol of the tables.

    Raises:
        ConfigError: There is no folder, or it does not have one of the names.
        DataError: The index or a table cannot be read.
    """
    folder = folder or folder_from_environment()
    if folder is None:
        raise ConfigError(f"No tables: set {VARIABLE} to their folder, or give --tables.")
    try:
        index = pd.read_csv(folder / INDEX)
    except OSError as error:
        raise DataError(f"{folder / INDEX} cannot be read ({error.strerror}).") from error
    missing = [column for column in COLUMNS if column not in index]
    if missing:
        raise DataError(f"{folder / INDEX} lacks the columns {', '.join(missing)}.")
    unknown = sorted(set(names or ()) - set(index["name"]))
    if unknown:
        raise ConfigError(f"{folder} has no tables {', '.join(unknown)}; see its {INDEX}.")
    wanted = index if names is None else index[index["name"].isin(names)]
    return [
        _load(row["name"], folder / row["file"], row["target_column"], protocol)
        for _, row in wanted.iterrows()
    ]


def _load(name: str, path: Path, target: str, protocol: Protocol) -> Table:
    try:
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        frame = pd.read_parquet(path)
        y = frame[target].astype(str).to_numpy(dtype=object)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"The table {name} in {path} cannot be read: {error}.") from error
    return Table(name, frame.drop(columns=[target]), y, checksum, protocol)
