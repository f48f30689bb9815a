"""Reads and writes tables: CSV and TSV, also by gzip and from standard input, and Parquet.

What a file format cannot say, the caller does (`ReadOptions`), and every fault is one line.
"""

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows import csv_text
from tabicl_linear.estimator.rows.label_text import MISSING_WORDS
from tabicl_linear.files import written_whole

CSV, TSV, PARQUET, GZIP = ".csv", ".tsv", ".parquet", ".gz"
STANDARD_INPUT = Path("-")
_GZIP_MAGIC = b"\x1f\x8b"
_HINT = ", or give another by --sep"


@dataclass(frozen=True)
class ReadOptions:
    """How CSV and TSV files are read.

    Attributes:
        sep: Character between fields; None for a comma, or a tab in TSV files.
        encoding: Of the text.
        na_values: Texts that count as missing, besides `MISSING_WORDS`.
        as_text: Columns to read as they are written: identifiers and labels. Only an empty field is
            missing there, as are `na_values`.
        texts: Columns whose values stay text whatever they look like, as categories do.
    """

    sep: str | None = None
    encoding: str = "utf-8"
    na_values: Sequence[str] = ()
    as_text: Sequence[str] = ()
    texts: Sequence[str] = ()


DEFAULT = ReadOptions()


def read_table(path: Path, options: ReadOptions = DEFAULT) -> pd.DataFrame:
    """The rows of a file, or of standard input for the path "-" (CSV, also compressed).

    Raises:
        DataError: The file is missing, empty or unreadable, has an unknown suffix, two columns of
            one name, a row longer than its header, or no rows.
    """
    if path == STANDARD_INPUT:
        table = _read_text("standard input", sys.stdin.buffer.read(), options, options.sep or ",")
    else:
        check_readable(path)
        suffix = suffix_of(path)
        try:
            if suffix == PARQUET:
                table = pd.read_parquet(path)
            else:
                sep = options.sep or ("\t" if suffix == TSV else ",")
                table = _read_text(str(path), path.read_bytes(), options, sep)
        except DataError:
            raise
        except (ValueError, OSError) as error:  # those of pandas and pyarrow are ValueErrors
            raise DataError(
                f"{path} is not a readable {suffix[1:]} file ({_one_line(error)})."
            ) from error
    if len(table) == 0:
        raise DataError(f"{name_of(path)} has a header but no rows; give at least one row.")
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise csv_text.repeated(name_of(path), twice[0])
    return table


def check_readable(path: Path) -> None:
    """Check that there is a file of a known kind.

    Raises:
        DataError: There is none.
    """
    if path == STANDARD_INPUT:
        return
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a CSV, TSV or Parquet file.")
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    suffix_of(path)


def suffix_of(path: Path) -> str:
    """Kind of a file by its name: ".csv", ".tsv" or ".parquet"; text also with ".gz" behind it.

    Raises:
        DataError: Another suffix.
    """
    suffix = path.suffix.lower()
    inner = Path(path.stem).suffix.lower() if suffix == GZIP else suffix
    if inner in (CSV, TSV) or (inner == PARQUET and suffix != GZIP):
        return inner
    raise DataError(
        f"{path}: unknown suffix {path.suffix!r}; use {CSV}, {TSV} (also with {GZIP}) or {PARQUET}."
    )


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write the table to a temporary name in the same folder, then rename the file.

    Raises:
        DataError: The file cannot be written; nothing is left behind.
    """
    suffix = suffix_of(path)
    compression: Any = {"method": "gzip", "mtime": 0} if path.suffix.lower() == GZIP else None
    try:
        with written_whole(path) as partial:
            if suffix == PARQUET:
                table.to_parquet(partial, index=False)
            else:
                sep = "\t" if suffix == TSV else ","
                table.to_csv(partial, index=False, sep=sep, compression=compression)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error


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
        with suppress(_Tried), written_whole(path) as partial:
            partial.touch()
            raise _Tried
    except OSError as error:
        raise DataError(
            f"--output {path} cannot be written: {error.strerror or error}; name another file."
        ) from error


class _Tried(Exception):
    """Ends a write before the file takes its name."""


def _read_text(named: str, content: bytes, options: ReadOptions, sep: str) -> pd.DataFrame:
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{named} is not a whole gzip file ({error}).") from error
    if not content.strip():
        raise DataError(f"{named} is empty; give a header line and rows.")
    try:
        header = _header(named, io.BytesIO(content), options, sep)
        return pd.read_csv(
            io.BytesIO(content),
            sep=sep,
            encoding=options.encoding,
            index_col=False,
            dtype=dict.fromkeys((*options.as_text, *options.texts), str),
            keep_default_na=False,
            na_values={
                name: ["", *options.na_values, *([] if name in options.as_text else MISSING_WORDS)]
                for name in header
            },
            # In one piece; in pieces, pandas may give one column several types.
            low_memory=False,
        )
    except UnicodeDecodeError as error:
        raise DataError(
            f"{named} is not {options.encoding} text (byte {error.object[error.start]:#04x}); say "
            "which it is, for example --encoding latin-1."
        ) from error
    except UnicodeError as error:  # such as UTF-16 without a mark at its start
        raise DataError(
            f"{named} is not {options.encoding} text ({error}); say which it is by --encoding."
        ) from error
    except (pd.errors.ParserError, csv.Error) as error:
        raise csv_text.fault(named, error, _HINT) from error


def _header(named: str, stream: BinaryIO, options: ReadOptions, sep: str) -> list[str]:
    # utf-8-sig also reads text without the mark.
    encoding = "utf-8-sig" if options.encoding.lower() in ("utf-8", "utf8") else options.encoding
    with io.TextIOWrapper(stream, encoding=encoding, newline="") as text:
        return csv_text.header(named, text, sep=sep, hint=_HINT)


def name_of(path: Path) -> str:
    """What messages call a file."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
