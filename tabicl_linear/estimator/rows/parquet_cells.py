"""Reads Parquet files, whose cells have types."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow.parquet import ParquetFile

from tabicl_linear.estimator.rows.frames import from_other_library


class ParquetCells:
    """The cells of a Parquet file; errors are those of pyarrow.

    Attributes:
        columns: Names of its columns, except those that pandas made from an index.
    """

    is_typed = True

    def __init__(self, path: Path) -> None:
        self._path = path
        with ParquetFile(path) as file:
            schema = file.schema_arrow
        # An index that is not a column is described by a dict, which equals no name.
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        self.columns = [name for name in schema.names if name not in index]

    def labels(self, name: str) -> "pd.Series[Any]":
        """The column with this name, as it is in the file."""
        return self._read([name])[name]

    def frame(self, texts: Sequence[str]) -> pd.DataFrame:
        """All rows; `texts` is not needed, as the file knows which columns are text."""
        return self._read(self.columns)

    def pieces(
        self, names: Sequence[str], texts: Sequence[str], rows_per_piece: int
    ) -> Generator[pd.DataFrame, None, None]:
        """Frames of some columns, with at most `rows_per_piece` rows; see `frame` for `texts`."""
        with ParquetFile(self._path) as file:
            for batch in file.iter_batches(rows_per_piece, columns=list(names)):
                yield _as_pandas(batch)

    def _read(self, names: list[str]) -> pd.DataFrame:
        with ParquetFile(self._path) as file:
            return _as_pandas(file.read(names))


def _as_pandas(rows: pa.Table | pa.RecordBatch) -> pd.DataFrame:
    frame: pd.DataFrame = from_other_library(rows)
    # Names as text, even if the file says that pandas had numbers or tuples as names.
    frame.columns = rows.schema.names
    return frame
