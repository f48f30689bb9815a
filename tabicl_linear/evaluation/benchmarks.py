"""The tables of a benchmark, from OpenML or from a folder."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tabicl_linear.errors import ConfigError, DataError, one_line
from tabicl_linear.evaluation.protocol import (
    CC18,
    TABARENA,
    BenchmarkTable,
    Protocol,
    encode,
    prepare,
)
from tabicl_linear.files import checksum

INDEX = "index.csv"
COLUMNS = ("name", "file", "target_column")
FOLDER = "folder:"
BENCHMARKS = {"openml-cc18": CC18, "tabarena": TABARENA}
"""Protocols of the paper's benchmarks."""
SUITES = {"openml-cc18-30": "openml-cc18", "tabarena": "tabarena"}
"""The paper's benchmark that has the same tables as a folder's suite, by the suite's name."""


@dataclass(frozen=True)
class Source:
    """A table that has not been read yet.

    Attributes:
        name: Name of the table, unique in its benchmark.
        path: Parquet file.
        target: Column of the labels.
        openml_id: Data id at OpenML, if it has one.
        fault: Why the table cannot be used; None if it can. It is not read if there is a fault.
    """

    name: str
    path: Path
    target: str
    openml_id: int | None = None
    fault: str | None = None

    def read(self) -> BenchmarkTable:
        """Read the whole table.

        Raises:
            DataError: The file cannot be read, or its target is missing.
        """
        if not self.path.is_file():
            raise DataError(
                f"The table {self.name} is listed, but there is no file {self.path}: mend the "
                "index, or put the file there."
            )
        try:
            frame = pd.read_parquet(self.path)
        except (OSError, ValueError) as error:
            raise DataError(
                f"The table {self.name} in {self.path} cannot be read as Parquet "
                f"({one_line(error)}); write or download the file again."
            ) from error
        return encode(frame, self.target, name=self.name, openml_id=self.openml_id)

    def checksum(self) -> str:
        """First 16 digits of the SHA-256 of the file."""
        return checksum(self.path)[:16]


@dataclass(frozen=True)
class Benchmark:
    """Tables, and the protocol by which they are used.

    Attributes:
        name: Name in the results.
        protocol: Caps and folds.
        sources: The tables.
        forgiving: Whether the other tables are scored if one cannot be used. This does not hold for
            a folder, which its owner can repair: such a table is an error before anything is
            computed.
    """

    name: str
    protocol: Protocol
    sources: tuple[Source, ...]
    forgiving: bool = False

    def table(self, source: Source) -> BenchmarkTable:
        """Read a table and reduce it to what the protocol uses.

        Raises:
            DataError: The table cannot be read or used.
        """
        return prepare(source.read(), self.protocol)


def folder_benchmark(folder: Path, suite: str | None) -> Benchmark:
    """The tables that a folder's `index.csv` lists.

    The index has columns `name`, `file` and `target_column`, and optionally `suite` and
    `openml_id`. Suites with the tables of a benchmark of the paper follow its protocol, others
    follow TabArena's.

    Args:
        folder: Folder with the index and a Parquet file for each table.
        suite: Use only tables of this suite. May be None if the index has at most one.

    Raises:
        ConfigError: There is no such suite, or there are several and none is chosen.
        DataError: The index cannot be read, lacks columns or cells, or lists a table twice.
    """
    index, name = _of_suite(_read_index(folder), suite, folder)
    twice = index["name"][index["name"].duplicated()]
    if len(twice) or index.empty:
        what = f"lists {twice.iloc[0]} twice" if len(twice) else "lists no table"
        raise DataError(f"{folder / INDEX} {what}; mend it.")
    sources = tuple(
        Source(
            name=str(row["name"]),
            path=folder / str(row["file"]),
            target=str(row["target_column"]),
            openml_id=_openml_id(row.get("openml_id"), str(row["name"]), folder),
        )
        for _, row in index.iterrows()
    )
    return Benchmark(name, BENCHMARKS.get(name, TABARENA), sources)


def _of_suite(index: pd.DataFrame, suite: str | None, folder: Path) -> tuple[pd.DataFrame, str]:
    """The tables of the suite, or of the only one if it is None; and the benchmark's name."""
    suites = list(dict.fromkeys(index["suite"].dropna())) if "suite" in index else []
    listed = ", ".join(suites) or "none: leave the option out"
    if suite is not None:
        if suite not in suites:
            raise ConfigError(f"--suite {suite}: {folder / INDEX} has no such suite ({listed}).")
        return index[index["suite"] == suite], SUITES.get(suite, suite)
    if len(suites) > 1:
        raise ConfigError(f"{folder} has tables of several suites: give --suite, one of {listed}.")
    if suites and index["suite"].isna().any():
        raise ConfigError(
            f"{folder} has tables of the suite {listed} and tables of none: give --suite {listed}, "
            "or name a suite for all."
        )
    name = suites[0] if suites else folder.resolve().name
    return index, SUITES.get(name, name)


def _openml_id(cell: Any, name: str, folder: Path) -> int | None:
    """The data id in a cell of the index; None if the cell is empty."""
    if cell is None or pd.isna(cell):
        return None
    try:
        number = float(cell)  # pandas reads 11.0 if other cells of the column are empty
    except ValueError:
        number = math.nan
    if not number.is_integer() or number < 0:
        raise DataError(
            f"{folder / INDEX}: the openml_id of {name} is {cell!r}; give a whole number, or leave "
            "it empty."
        )
    return int(number)


def _read_index(folder: Path) -> pd.DataFrame:
    try:
        # As text: names of suites and tables can be numbers, such as those of OpenML's suites.
        index = pd.read_csv(folder / INDEX, dtype={"suite": str, "name": str})
    except OSError as error:
        raise DataError(
            f"{folder / INDEX} cannot be read ({error.strerror}); it lists name, file and "
            "target_column of every table."
        ) from error
    except ValueError as error:
        raise DataError(
            f"{folder / INDEX} is no table of comma-separated values ({one_line(error)}); mend it."
        ) from error
    missing = [column for column in COLUMNS if column not in index]
    if missing:
        raise DataError(f"{folder / INDEX} lacks the columns {', '.join(missing)}.")
    for column in COLUMNS:
        gaps = int(index[column].isna().sum())
        if gaps:
            raise DataError(
                f"{folder / INDEX}: the column {column} is empty in {gaps} of {len(index)} rows; "
                "fill it in, or remove those rows."
            )
    return index


def benchmark(
    named: str, suite: str | None, openml: Callable[[str, str | None], tuple[Source, ...]]
) -> Benchmark:
    """The benchmark that a command line names.

    Args:
        named: "openml-cc18", "tabarena" or "folder:PATH".
        suite: A suite of the folder, or the number of an OpenML suite that replaces the benchmark's
            own list of tables.
        openml: Reads the tables of a benchmark (its name, and the number of another suite or None)
            from OpenML.

    Raises:
        ConfigError: There is no such benchmark or suite.
        DataError: The tables cannot be read.
    """
    if named.startswith(FOLDER):
        return folder_benchmark(Path(named.removeprefix(FOLDER)), suite)
    if named not in BENCHMARKS:
        raise ConfigError(f"--benchmark {named}: give {', '.join(BENCHMARKS)} or {FOLDER}PATH.")
    return Benchmark(named, BENCHMARKS[named], openml(named, suite), forgiving=True)
