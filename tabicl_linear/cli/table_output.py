"""Writes tables, whole or in pieces, as CSV or TSV (also with gzip) or Parquet.

A file is either complete or does not appear at all.
"""

import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pandas as pd

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.table_file import GZIP, PARQUET, TSV, suffix_of
from tabicl_linear.files import check_replaceable, not_written, try_writing, written_whole

Write = Callable[[pd.DataFrame], None]


@contextmanager
def table_writer(path: Path) -> Iterator[Write]:
    """Yield a function that appends frames with equal columns to a file.

    The file is written under a temporary name, and renamed to `path` when the block ends.

    Raises:
        DataError: The file cannot be written; nothing is left behind.
    """
    writer = _parquet_writer if suffix_of(path) == PARQUET else _text_writer
    try:
        with written_whole(path) as partial, partial.open("wb") as file, ExitStack() as layers:
            yield writer(path, file, layers)
    except OSError as error:
        raise DataError(not_written(str(path), error)) from error


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write one frame; see `table_writer`."""
    with table_writer(path) as write:
        write(table)


def check_writable(path: Path, inputs: Sequence[Path]) -> None:
    """Check, before any work: raise `DataError` if an output cannot be written or is an input."""
    try:
        if path.is_dir():
            raise DataError(f"--output {path} is a folder; give a file name in it.")
        suffix_of(path)
        if not path.parent.is_dir():
            raise DataError(f"--output {path}: there is no folder {path.parent}; create it.")
        for source in inputs:
            if path.exists() and source.exists() and path.samefile(source):
                raise DataError(f"--output {path} is one of the input files; give another name.")
        check_replaceable(path)
        try_writing(path)
    except OSError as error:
        raise DataError(
            f"--output {path} cannot be written: {error.strerror or error}; name another file."
        ) from error


def _text_writer(path: Path, file: IO[bytes], layers: ExitStack) -> Write:
    stream: Any = file
    if path.suffix.lower() == GZIP:
        # No file name and no time in the header, so that equal tables give equal files.
        stream = layers.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
    text = layers.enter_context(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
    sep = "\t" if suffix_of(path) == TSV else ","
    is_first = True

    def write(frame: pd.DataFrame) -> None:
        nonlocal is_first
        frame.to_csv(text, index=False, header=is_first, sep=sep)
        is_first = False

    return write


def _parquet_writer(_: Path, file: IO[bytes], layers: ExitStack) -> Write:
    # Imported here, since only Parquet needs it.
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writer: Any = None

    def write(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if writer is None:
            writer = layers.enter_context(ParquetWriter(file, table.schema))
        writer.write_table(table)

    return write
