"""Writes tables: CSV and TSV, also by gzip, and Parquet; whole or in pieces, or not at all."""

import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.table_file import GZIP, PARQUET, TSV, suffix_of
from tabicl_linear.files import partial_name, written_whole

Write = Callable[[pd.DataFrame], None]


@contextmanager
def table_writer(path: Path) -> Iterator[Write]:
    """Appends frames of equal columns to a file that has its name only once it is complete.

    Raises:
        DataError: The file cannot be written; nothing is left behind.
    """
    open_file = _parquet if suffix_of(path) == PARQUET else _text
    try:
        with written_whole(path) as partial, open_file(partial, path) as write:
            yield write
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; name a file in a writable "
            "folder with enough room."
        ) from error


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write one frame; see `table_writer`."""
    with table_writer(path) as write:
        write(table)


def check_writable(path: Path, inputs: Sequence[Path]) -> None:
    """Check, before the work, that an output file can be written; leaves nothing behind.

    Raises:
        DataError: It cannot, or it is one of the inputs.
    """
    try:
        if path.is_dir():
            raise DataError(f"--output {path} is a folder; give a file name in it.")
        suffix_of(path)
        if not path.parent.is_dir():
            raise DataError(f"--output {path}: folder {path.parent} does not exist; create it.")
        for source in inputs:
            if path.exists() and source.exists() and path.samefile(source):
                raise DataError(f"--output {path} is one of the input files; give another name.")
        partial = partial_name(path)
        try:
            partial.touch()
        finally:  # also where a signal ends the command here
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"--output {path} cannot be written: {error.strerror or error}; name another file."
        ) from error


@contextmanager
def _text(partial: Path, path: Path) -> Iterator[Write]:
    with ExitStack() as files:
        stream: Any = files.enter_context(partial.open("wb"))
        if path.suffix.lower() == GZIP:
            # Without a name and a time, equal tables are equal files.
            stream = files.enter_context(gzip.GzipFile("", "wb", fileobj=stream, mtime=0))
        text = files.enter_context(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
        is_first = True

        def write(frame: pd.DataFrame) -> None:
            nonlocal is_first
            sep = "\t" if suffix_of(path) == TSV else ","
            frame.to_csv(text, index=False, header=is_first, sep=sep)
            is_first = False

        yield write


@contextmanager
def _parquet(partial: Path, _: Path) -> Iterator[Write]:
    # Imported here, since only Parquet needs it.
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    with ExitStack() as files:
        file = files.enter_context(partial.open("wb"))
        writer: Any = None

        def write(frame: pd.DataFrame) -> None:
            nonlocal writer
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if writer is None:
                writer = files.enter_context(ParquetWriter(file, table.schema))
            writer.write_table(table)

        yield write
