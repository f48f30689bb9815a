"""What is evaluated on: the tables of a benchmark, from OpenML or from a folder."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.evaluation.protocol import (
    CC18,
    TABARENA,
    BenchmarkTable,
    Protocol,
    encode,
    prepare,
)

INDEX = "index.csv"
COLUMNS = ("name", "file", "target_column")
FOLDER = "folder:"
BENCHMARKS = {"openml-cc18": CC18, "tabarena": TABARENA}
"""Protocols of the paper's benchmarks."""
SUITES = {"openml-cc18-30": "openml-cc18", "tabarena": "tabarena"}
"""Suites of a folder whose tables are those of a benchmark of the paper, and its name."""


@dataclass(frozen=True)
class Source:
    """A table that is not read yet.

    Attributes:
        name: Of the table; no other of a benchmark has it.
        path: Parquet file.
        target: Column of the labels.
        openml_id: Data id at OpenML.
        fault: Why there is no file, or none that can be used; then nothing of it is read.
    """

    name: str
    path: Path
    target: str
    openml_id: int | None = None
    fault: str | None = None

    def read(self) -> BenchmarkTable:
        """The whole table.

        Raises:
            DataError: The file cannot be read, or its target is missing.
        """
        if not self.path.is_file():
            raise DataError(f"The table {self.name} is listed, but there is no file {self.path}.")
        try:
            frame = pd.read_parquet(self.path)
        except (OSError, ValueError) as error:
            raise DataError(
                f"The table {self.name} in {self.path} cannot be read as Parquet: {error}"
            ) from error
        return encode(frame, self.target, name=self.name, openml_id=self.openml_id)

    def checksum(self) -> str:
        """First digits of the SHA-256 of the file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Benchmark:
    """Tables and what is used of them.

    Attributes:
        name: In the results.
        protocol: Caps and folds.
        sources: The tables.
        forgiving: Whether a table that cannot be used fails alone, and the others are scored. A
            folder can be mended, so that such a table in it is refused before anything is computed.
    """

    name: str
    protocol: Protocol
    sources: tuple[Source, ...]
    forgiving: bool = False

    def table(self, source: Source) -> BenchmarkTable:
        """A table as the protocol uses it.

        Raises:
            DataError: It cannot be read or used.
        """
        return prepare(source.read(), self.protocol)


def folder_benchmark(folder: Path, suite: str | None) -> Benchmark:
    """The tables that a folder's `index.csv` lists.

    Columns `name`, `file` and `target_column`; if there are `suite` and `openml_id`, they are used.
    Suites that hold tables of the paper's benchmarks follow their protocols; others are capped like
    TabArena.

    Args:
        folder: With the index and a parquet file for each table.
        suite: Only tables of this suite. May be left out where there is one at most.

    Raises:
        ConfigError: No such suite, or several of which none is chosen.
        DataError: An index that cannot be read, lacks columns or cells, or lists a table twice.
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
    """The tables of the suite that was asked for, or of the only one; and the benchmark's name."""
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
    """A data id; None where the cell is empty."""
    if cell is None or pd.isna(cell):
        return None
    try:
        number = float(cell)  # 11.0, where another table of the column has none
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
        # Suites of OpenML are numbers, and there are tables called 1999.
        index = pd.read_csv(folder / INDEX, dtype={"suite": str, "name": str})
    except OSError as error:
        raise DataError(
            f"{folder / INDEX} cannot be read ({error.strerror}); it lists name, file and "
            "target_column of every table."
        ) from error
    except ValueError as error:
        raise DataError(
            f"{folder / INDEX} is no table of comma-separated values: {error}"
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
    """The benchmark of a command line.

    Args:
        named: "openml-cc18", "tabarena" or "folder:PATH".
        suite: Of the folder, or number of a suite at OpenML to take instead of the benchmark's own
            list.
        openml: Reads the tables of a benchmark, or of another suite, from OpenML.

    Raises:
        ConfigError: No such benchmark or suite.
        DataError: The tables cannot be read.
    """
    if named.startswith(FOLDER):
        return folder_benchmark(Path(named.removeprefix(FOLDER)), suite)
    if named not in BENCHMARKS:
        raise ConfigError(f"--benchmark {named}: give {', '.join(BENCHMARKS)} or {FOLDER}PATH.")
    return Benchmark(named, BENCHMARKS[named], openml(named, suite), forgiving=True)
