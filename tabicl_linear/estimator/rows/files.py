"""Tables in files, read piece by piece."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows import csv_text
from tabicl_linear.estimator.rows.label_text import typed_labels

CSV = ".csv"
PARQUET = ".parquet"
ROWS_PER_PIECE = 50_000
MOST_SHOWN = 10
"""Column names in a message."""


class TableFile:
    """A CSV or Parquet file, by suffix, of any length.

    Args:
        path: The file.

    Attributes:
        columns: Names of its columns; those that pandas made of an index are none.

    Raises:
        DataError: The file is missing, empty or unreadable, has an unknown suffix or the same
            column name twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise DataError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}.")
        self._is_csv = path.suffix.lower() == CSV
        if not self._is_csv and path.suffix.lower() != PARQUET:
            raise DataError(f"{path}: unknown suffix {path.suffix!r}; use {CSV} or {PARQUET}.")
        self.columns = self._names()
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise csv_text.repeated(str(path), twice[0])

    def num_rows(self) -> int:
        """How many rows it has; for CSV, lines after the first, an upper bound."""
        if not self._is_csv:
            with self._parquet() as file:
                return int(file.metadata.num_rows)
        lines, block = 0, b"\n"
        with self.path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                lines += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
        return lines - 1 + (not block.endswith((b"\n", b"\r")))

    def require(self, name: str) -> None:
        """Raise `DataError` if there is no such column."""
        if name not in self.columns:
            shown = ", ".join(self.columns[:MOST_SHOWN])
            more = len(self.columns) - MOST_SHOWN
            raise DataError(
                f"{self.path} has no column {name!r}; its columns (commas separate them) are "
                f"{shown}{f' and {more} more' if more > 0 else ''}."
            )

    def labels(self, name: str) -> "pd.Series[Any]":
        """All values of the column of the labels, those of CSV files by the rules of `predict`.

        Raises:
            DataError: There is no such column, or the file is unreadable.
        """
        self.require(name)
        with _ReadingErrors(self.path):
            if self._is_csv:
                text = pd.read_csv(
                    self.path,
                    usecols=[name],
                    index_col=False,
                    dtype=str,
                    keep_default_na=False,
                    na_values=[""],
                )
                return typed_labels(text[name])
            return pd.read_parquet(self.path, columns=[name])[name]

    def texts(self) -> list[str]:
        """Columns whose first piece holds text.

        Raises:
            DataError: The file is unreadable.
        """
        first = next(self.pieces(texts=()), None)
        return [] if first is None else [name for name in self.columns if is_text(first[name])]

    def pieces(
        self, columns: Sequence[str] | None = None, texts: Sequence[str] | None = None
    ) -> Iterator[pd.DataFrame]:
        """Frames of at most `ROWS_PER_PIECE` rows, in order.

        Args:
            columns: Names of some columns; all if left out.
            texts: Columns of a CSV file that are text whatever a piece of them looks like, as 007
                would be 7 in a piece of such; those of `texts()` if left out.

        Raises:
            DataError: The file is unreadable.
        """
        names = self.columns if columns is None else list(columns)
        if texts is None:
            texts = self.texts() if self._is_csv else ()
        with _ReadingErrors(self.path):
            if self._is_csv:
                # All columns, since `usecols` would cut rows that are too long. low_memory=False:
                # one type for each column of a piece.
                with pd.read_csv(
                    self.path,
                    index_col=False,
                    dtype=dict.fromkeys(texts, str),
                    chunksize=ROWS_PER_PIECE,
                    low_memory=False,
                ) as reader:
                    yield from (piece[names] for piece in reader if len(piece))
                return
            with self._parquet() as file:
                for batch in file.iter_batches(ROWS_PER_PIECE, columns=names):
                    yield batch.to_pandas()

    def _names(self) -> list[str]:
        with _ReadingErrors(self.path):
            if not self._is_csv:
                with self._parquet() as file:
                    schema = file.schema_arrow
                # Descriptions of an index that is no column are no texts.
                index = (schema.pandas_metadata or {}).get("index_columns", [])
                return [name for name in schema.names if name not in index]
            with self.path.open(encoding="utf-8-sig", newline="") as lines:
                names = csv_text.header(str(self.path), lines)
        if not names:
            raise DataError(f"{self.path} is empty; give a header line and rows.")
        return names

    def _parquet(self) -> Any:
        # Imported here, since only files need it.
        from pyarrow.parquet import ParquetFile

        return ParquetFile(self.path)


def is_text(column: "pd.Series[Any]") -> bool:
    """Whether a column of a table that was read holds text."""
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool(dtypes.infer_dtype(values, skipna=True) == "string")


class _ReadingErrors:
    """Turns the reading errors of pandas and pyarrow into one line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, pd.errors.ParserError | csv.Error):
            raise csv_text.fault(str(self._path), error) from error
        # Errors of pandas' and pyarrow's readers are ValueErrors; ours say what is wrong already.
        if isinstance(error, ValueError | OSError) and not isinstance(error, DataError):
            reason = " ".join(str(error).split())
            raise DataError(
                f"{self._path} is not a readable {self._path.suffix[1:].lower()} file ({reason}); "
                "CSV files are comma-separated UTF-8 with a header."
            ) from error
