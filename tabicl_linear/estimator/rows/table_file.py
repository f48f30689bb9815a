"""Reads tables in files, whole or in pieces: CSV, TSV (also gzipped), Parquet, and standard input.

`text_cells` and `parquet_cells` read the cells. Every error becomes a message of one line.
"""

import codecs
import gzip
import re
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError, one_line
from tabicl_linear.estimator.notices import brief, listed, shown, warn_user
from tabicl_linear.estimator.rows.labels import labels_of_file
from tabicl_linear.estimator.rows.text_cells import TextCells, TextFormat

if TYPE_CHECKING:
    from tabicl_linear.estimator.rows.parquet_cells import ParquetCells

CSV, TSV, PARQUET, GZIP = ".csv", ".tsv", ".parquet", ".gz"
STANDARD_INPUT = Path("-")
ROWS_PER_PIECE = 50_000
PLAIN = TextFormat()
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OR_COMMAS = (
    ", or write commas between fields if there are other separators (or give `predict` --sep)"
)
_OR_SEP = ", or name the separator if it is another (--sep of `predict`)"


class TableFile:
    """A table of any length in a file, or on standard input for the path "-" (CSV).

    Attributes:
        name: What messages call the file.
        columns: Names of its columns, except those that pandas made from an index.

    Raises:
        DataError: The file is missing, empty or unreadable, has an unknown suffix (see
            `suffix_of`), the same column name twice, or a first row longer than the header.
            Methods also raise it if a later row is unreadable.
    """

    def __init__(self, path: Path, text: TextFormat = PLAIN) -> None:
        check_readable(path)
        self.path, self._encoding = path, text.encoding
        self.name = "standard input" if path == STANDARD_INPUT else str(path)
        self._kind = CSV if path == STANDARD_INPUT else suffix_of(path)
        with self._faults():
            self._cells = self._opened(text)
        self.columns = self._cells.columns
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise DataError(
                f"{self.name}: column name {brief(twice[0])} occurs more than once; rename it."
            )

        self._warn_of_cut()

    def _warn_of_cut(self) -> None:
        line = self._cells.short_end() if isinstance(self._cells, TextCells) else None
        if line is not None:
            warn_user(
                f"{self.name}: the last line, {brief(line)}, has fewer fields than the header, as "
                "if the file was cut off, and those that lack are read as missing. Copy the file "
                "again, or remove the line."
            )

    def _opened(self, text: TextFormat) -> "TextCells | ParquetCells":
        if self._kind == PARQUET:
            # Imported here, since only such files need it.
            from tabicl_linear.estimator.rows.parquet_cells import ParquetCells

            return ParquetCells(self.path)
        # Standard input is read once, since it cannot be read again.
        source = sys.stdin.buffer.read() if self.path == STANDARD_INPUT else self.path
        sep = text.sep or ("\t" if self._kind == TSV else ",")
        return TextCells(source, replace(text, sep=sep))

    @property
    def is_typed(self) -> bool:
        """Whether cells have types, as in Parquet files; otherwise they are text."""
        return self._cells.is_typed

    def num_rows(self) -> int:
        """Number of rows. All are read to count them, which finds unreadable rows of text."""
        return sum(len(piece) for piece in self.pieces(self.columns[:1], texts=()))

    def check_rows(self, count: int) -> None:
        """Raise `DataError` if `count`, the rows that were read, is 0."""
        if count == 0:
            raise DataError(f"{self.name} has a header but no rows; give at least one row.")

    def require(self, name: str) -> None:
        """Raise `DataError` if there is no such column."""
        if name not in self.columns:
            raise DataError(
                f"{self.name} has no column {brief(name)}; its columns (commas separate them) are "
                f"{shown(self.columns)}. Name one of them{'' if self.is_typed else _OR_COMMAS}."
            )

    def labels(self, name: str) -> "pd.Series[Any]":
        """The column with the labels; in a text file `typed_labels` decides their type."""
        self.require(name)
        with self._faults():
            return self._cells.labels(name)

    def labelled(self, target: str) -> "tuple[pd.DataFrame, pd.Series[Any]]":
        """All rows without the target column, and that column.

        Raises:
            DataError: There is no such column, or it holds no class labels.
        """
        self.require(target)
        table = self.frame()
        labels = table.pop(target)
        labels_of_file(labels, self.name)
        return table, labels

    def texts(self) -> list[str]:
        """Columns whose first piece holds text."""
        # Closed here: a signal that comes while Python deletes the iterator would be lost.
        with closing(self.pieces(texts=())) as pieces:
            first = next(pieces, None)
        if first is None:
            return []
        self._warn_of_thousands(first)
        return [name for name in self.columns if is_text(first[name])]

    def _warn_of_thousands(self, first: pd.DataFrame) -> None:
        """Warn of text such as 1.234, more than a thousand in Germany, that is read as about one.

        `first` holds all rows, or the first ones.
        """
        if not isinstance(self._cells, TextCells):
            return
        with self._faults():
            examples = self._cells.thousands(first)
        if examples:
            columns = listed([f"{brief(name)} ({text})" for name, text in examples.items()])
            warn_user(
                f"{self.name}: points are read as decimal signs, and may stand between thousands, "
                f"in columns {columns}. If they do, leave them out."
            )

    def frame(self, texts: Sequence[str] = ()) -> pd.DataFrame:
        """All rows; there must be at least one.

        `texts` names columns of a text file that stay text, whatever their cells look like.
        """
        with self._faults():
            frame = self._cells.frame(texts)
        self.check_rows(len(frame))
        self._warn_of_thousands(frame)
        return frame

    def pieces(
        self, columns: Sequence[str] | None = None, texts: Sequence[str] | None = None
    ) -> Generator[pd.DataFrame, None, None]:
        """Frames of some columns (all if None) with at most `ROWS_PER_PIECE` rows, in order.

        `texts` names columns of a text file that stay text, whatever a piece of them looks like: in
        a piece with only such cells, 007 would become 7. None takes those of `texts()`.
        """
        names = self.columns if columns is None else list(columns)
        if texts is None:
            texts = () if self.is_typed else self.texts()
        with self._faults():
            yield from self._cells.pieces(names, texts, ROWS_PER_PIECE)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn the errors of pandas, pyarrow and gzip into a `DataError` of one line."""
        try:
            yield
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from error
        except pd.errors.EmptyDataError as error:
            raise DataError(f"{self.name} is empty; give a header line and rows.") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self.name} is not a whole gzip file ({error}).") from error
        except UnicodeError as error:
            reason = str(error)  # for example UTF-16 without a byte order mark
            example = "for example --encoding latin-1"
            if isinstance(error, UnicodeDecodeError):
                reason = f"byte {error.object[error.start]:#04x}"
                if error.start == 0 and error.object.startswith(_UTF16_MARKS):
                    example = "by its first bytes --encoding utf-16"
            raise DataError(
                f"{self.name} is not {self._encoding} text ({reason}); say which it is "
                f"({example}), or save it as UTF-8."
            ) from error
        except pd.errors.ParserError as error:
            raise DataError(f"{self.name}{_csv_fault(error)}{_OR_SEP}.") from error
        except (ValueError, OSError) as error:  # those of pandas' and pyarrow's readers
            raise DataError(
                f"{self.name} is not a readable {self._kind[1:]} file ({one_line(error)})."
            ) from error


def _csv_fault(error: Exception) -> str:
    """What is wrong with a file, from the message of pandas, and what to do about it."""
    reason = one_line(error)
    counts = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if counts:
        expected, line, fields = counts.groups()
        of_names = ""
        if line == "2" and int(fields) == int(expected) + 1 > 2:
            of_names = (
                "if the first ones are names of rows, as R writes them, write the file without "
                "(row.names = FALSE); else "
            )
        # Such as a title, or the line "sep=;" of some programs.
        above = ", or remove the lines above the header if there are some" if line in "23" else ""
        return (
            f": line {line} has {fields} fields and the header {expected}; {of_names}put quotes "
            f"around fields that hold the separator{above}"
        )
    remedy = "close the quote that is open there" if "inside string" in reason else "mend that line"
    return f" is not a readable table ({reason}); {remedy}"


def check_readable(path: Path) -> None:
    """Raise `DataError` unless the path is standard input or a file of a known kind."""
    if path == STANDARD_INPUT:
        return
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a CSV, TSV or Parquet file.")
    if path.is_fifo():
        raise DataError(
            f"{path} is a pipe, which can be read once: give - in its place, and < {path}."
        )
    if not path.is_file():
        is_address = re.match(r"\w\w+:/", str(path)) is not None
        raise DataError(f"{path}: no such file{'; download it first' if is_address else ''}.")
    suffix_of(path)


def suffix_of(path: Path) -> str:
    """Kind of a file by its name: ".csv", ".tsv" or ".parquet"; ".gz" may follow the first two.

    Raises:
        DataError: The name has another suffix.
    """
    suffix = path.suffix.lower()
    inner = Path(path.stem).suffix.lower() if suffix == GZIP else suffix
    if inner in (CSV, TSV) or (inner == PARQUET and suffix != GZIP):
        return inner
    raise DataError(
        f"{path}: unknown suffix {path.suffix!r}; use {CSV}, {TSV} (also with {GZIP}) or {PARQUET}."
    )


def is_text(column: "pd.Series[Any]") -> bool:
    """Whether a column of a table holds text."""
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool(dtypes.infer_dtype(values, skipna=True) == "string")
