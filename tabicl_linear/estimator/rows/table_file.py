"""Tables in files, whole or in pieces: CSV, TSV (also by gzip, on standard input) and Parquet.

What a file of text cannot say, the caller does (`TextFormat`), and every fault is one line.
"""

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.notices import shown
from tabicl_linear.estimator.rows.frames import from_other_library
from tabicl_linear.estimator.rows.labels import MISSING_WORDS, typed_labels

if TYPE_CHECKING:
    import pyarrow as pa

CSV, TSV, PARQUET, GZIP = ".csv", ".tsv", ".parquet", ".gz"
STANDARD_INPUT = Path("-")
ROWS_PER_PIECE = 50_000
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OR_COMMAS = (
    ", or write commas between fields if there are other separators (or give `predict` --sep)"
)
_OR_SEP = ", or name the separator if it is another (--sep of `predict`)"


@dataclass(frozen=True)
class TextFormat:
    """How CSV and TSV files are read.

    Attributes:
        sep: Character between fields; None for a comma, or a tab in TSV files.
        encoding: Of the text.
        na_values: Texts that count as missing, besides `MISSING_WORDS`.
        as_written: Columns of identifiers and labels, which stay text. Only an empty field is
            missing there, as are `na_values`.
    """

    sep: str | None = None
    encoding: str = "utf-8"
    na_values: Sequence[str] = ()
    as_written: Sequence[str] = ()


PLAIN = TextFormat()


class TableFile:
    """A table of any length in a file, or on standard input for the path "-" (CSV).

    Attributes:
        name: What messages call it.
        columns: Names of its columns; those that pandas made of an index are none.

    Raises:
        DataError: The file is missing, empty or unreadable, has an unknown suffix (see
            `suffix_of`), the same column name twice, or a first row longer than the header.
            Methods raise it, too, where a later row is unreadable.
    """

    def __init__(self, path: Path, text: TextFormat = PLAIN) -> None:
        check_readable(path)
        self.path = path
        self.name = "standard input" if path == STANDARD_INPUT else str(path)
        self._kind = CSV if path == STANDARD_INPUT else suffix_of(path)
        self._text = text
        self._sep = text.sep or ("\t" if self._kind == TSV else ",")
        # Read once, since it cannot be read again.
        self._content = sys.stdin.buffer.read() if path == STANDARD_INPUT else None
        self.columns = self._names()
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise DataError(
                f"{self.name}: column name {twice[0]!r} occurs more than once; rename it."
            )

    @property
    def is_typed(self) -> bool:
        """Whether cells have types, as in Parquet; else they are text."""
        return self._kind == PARQUET

    def num_rows(self) -> int:
        """How many rows it has; text is parsed for it, so that its faults are found."""
        if not self.is_typed:
            return sum(len(piece) for piece in self.pieces(texts=()))
        with self._faults(), self._parquet() as file:
            return int(file.metadata.num_rows)

    def require(self, name: str) -> None:
        """Raise `DataError` if there is no such column."""
        if name not in self.columns:
            raise DataError(
                f"{self.name} has no column {name!r}; its columns (commas separate them) are "
                f"{shown(self.columns)}. Name one of them{'' if self.is_typed else _OR_COMMAS}."
            )

    def labels(self, name: str) -> "pd.Series[Any]":
        """The column of the labels; in text of the type that `typed_labels` says."""
        self.require(name)
        with self._faults():
            if self.is_typed:
                with self._parquet() as file:
                    return self._frame_of(file.read([name]))[name]
            with self._bytes() as stream:
                options = self._options(texts=(), as_written=(name,))
                return typed_labels(pd.read_csv(stream, usecols=[name], **options)[name])

    def texts(self) -> list[str]:
        """Columns whose first piece holds text."""
        # Closed here: a signal while Python drops the iterator would be lost.
        with closing(self.pieces(texts=())) as pieces:
            first = next(pieces, None)
        return [] if first is None else [name for name in self.columns if is_text(first[name])]

    def frame(self, texts: Sequence[str] = ()) -> pd.DataFrame:
        """All rows, of which there must be one.

        `texts` are columns of a file of text that are text whatever they look like.
        """
        with self._faults():
            if self.is_typed:
                with self._parquet() as file:
                    frame = self._frame_of(file.read(self.columns))
            else:
                with self._bytes() as stream:
                    frame = pd.read_csv(stream, **self._options(texts, self._text.as_written))
                if long := [name for name in _long_numbers(frame) if frame[name].hasnans]:
                    with self._bytes() as stream:
                        options = self._options(long, ())
                        columns = pd.read_csv(stream, usecols=long, **options)
                    for name in long:
                        frame[name] = _all_digits(columns[name])
        if len(frame) == 0:
            raise no_rows(self.name)
        return frame

    def pieces(
        self, columns: Sequence[str] | None = None, texts: Sequence[str] | None = None
    ) -> Generator[pd.DataFrame, None, None]:
        """Frames of some columns (all if left out) of at most `ROWS_PER_PIECE` rows, in order.

        `texts` are columns of a file of text that are text whatever a piece of them looks like, as
        007 would be 7 in a piece of such; those of `texts()` if left out.
        """
        names = self.columns if columns is None else list(columns)
        if texts is None:
            texts = () if self.is_typed else self.texts()
        with self._faults():
            if self.is_typed:
                with self._parquet() as file:
                    for batch in file.iter_batches(ROWS_PER_PIECE, columns=names):
                        yield self._frame_of(batch)
                return
            yield from self._pieces_of_text(names, texts)

    def _pieces_of_text(
        self, names: Sequence[str], texts: Sequence[str], long: Sequence[str] | None = None
    ) -> Generator[pd.DataFrame, None, None]:
        """Pieces in which the columns of `_long_numbers` of the first one keep all digits."""
        # All columns, since `usecols` would cut rows that are too long.
        options = self._options((*texts, *(long or ())), self._text.as_written)
        with (
            self._bytes() as stream,
            pd.read_csv(stream, chunksize=ROWS_PER_PIECE, **options) as reader,
        ):
            for piece in reader:
                if long is None:
                    # Later pieces may have gaps where the first has none.
                    long = _long_numbers(piece)
                    if long:
                        break
                for name in long:
                    piece[name] = _all_digits(piece[name])
                if len(piece):
                    yield piece[names]
            else:
                return
        yield from self._pieces_of_text(names, texts, long)

    def _options(self, texts: Sequence[str], as_written: Sequence[str]) -> dict[str, Any]:
        """Arguments of `pandas.read_csv`."""
        return {
            "sep": self._sep,
            "encoding": self._text.encoding,
            "index_col": False,
            "dtype": dict.fromkeys((*as_written, *texts), str),
            "keep_default_na": False,
            "na_values": {
                name: ["", *self._text.na_values, *(() if name in as_written else MISSING_WORDS)]
                for name in self.columns
            },
            # One type for each column of a piece.
            "low_memory": False,
        }

    def _names(self) -> list[str]:
        with self._faults():
            if self.is_typed:
                with self._parquet() as file:
                    schema = file.schema_arrow
                # Descriptions of an index that is no column are no texts.
                index = (schema.pandas_metadata or {}).get("index_columns", [])
                return [name for name in schema.names if name not in index]
            try:
                with self._bytes() as stream:
                    # pandas would rename a name that occurs twice, and take the first fields of a
                    # row that is longer than the header as names of the rows. As two rows of cells
                    # it takes the header as it is, and refuses the longer one.
                    header = pd.read_csv(
                        stream,
                        header=None,
                        nrows=2,
                        sep=self._sep,
                        encoding=self._text.encoding,
                        dtype=str,
                        keep_default_na=False,
                    )
            except pd.errors.EmptyDataError as error:
                raise DataError(f"{self.name} is empty; give a header line and rows.") from error
        names = header.iloc[0].fillna("").tolist()
        return [name or f"Unnamed: {position}" for position, name in enumerate(names)]

    @contextmanager
    def _bytes(self) -> Iterator[IO[bytes] | gzip.GzipFile]:
        """The text, which may be compressed whatever its name."""
        content = self._content
        with self.path.open("rb") if content is None else io.BytesIO(content) as stream:
            is_compressed = stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            stream.seek(0)
            if is_compressed:
                with gzip.GzipFile(fileobj=stream) as text:
                    yield text
            else:
                yield stream

    def _frame_of(self, rows: "pa.Table | pa.RecordBatch") -> pd.DataFrame:
        try:
            frame: pd.DataFrame = from_other_library(rows)
            # The file may also say that pandas had numbers or tuples as names.
            frame.columns = rows.schema.names
            return frame
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from error

    def _parquet(self) -> Any:
        # Imported here, since only files need it.
        from pyarrow.parquet import ParquetFile

        return ParquetFile(self.path)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turns the errors of pandas, pyarrow and gzip into one line."""
        try:
            yield
        except DataError:
            raise
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self.name} is not a whole gzip file ({error}).") from error
        except UnicodeError as error:
            reason = str(error)  # such as UTF-16 without a mark at its start
            example = "for example --encoding latin-1"
            if isinstance(error, UnicodeDecodeError):
                reason = f"byte {error.object[error.start]:#04x}"
                if error.start == 0 and error.object.startswith(_UTF16_MARKS):
                    example = "by its first bytes --encoding utf-16"
            raise DataError(
                f"{self.name} is not {self._text.encoding} text ({reason}); say which it is "
                f"({example}), or save it as UTF-8."
            ) from error
        except pd.errors.ParserError as error:
            raise DataError(f"{self.name}{_csv_fault(error)}{_OR_SEP}.") from error
        except (ValueError, OSError) as error:  # those of pandas' and pyarrow's readers
            raise DataError(
                f"{self.name} is not a readable {self._kind[1:]} file "
                f"({' '.join(str(error).split())})."
            ) from error


def _csv_fault(error: Exception) -> str:
    """What is wrong with a file, from the words of pandas, and what to do."""
    reason = " ".join(str(error).split())
    counts = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if counts:
        expected, line, fields = counts.groups()
        if line == "2" and int(fields) == int(expected) + 1 > 2:
            return (
                f": line 2 has {fields} fields and the header {expected}; if the first ones are "
                "names of rows, as R writes them, write the file without (row.names = FALSE); else "
                "put quotes around fields that hold the separator"
            )
        return (
            f": line {line} has {fields} fields and the header {expected}; put quotes around "
            "fields that hold the separator"
        )
    remedy = "close the quote that is open there" if "inside string" in reason else "mend that line"
    return f" is not a readable table ({reason}); {remedy}"


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


def is_text(column: "pd.Series[Any]") -> bool:
    """Whether a column of a table that was read holds text."""
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool(dtypes.infer_dtype(values, skipna=True) == "string")


def _long_numbers(table: pd.DataFrame) -> list[str]:
    """Columns of whole numbers of a file of text, some of more digits than floats have."""
    return [
        name
        for name, cells in table.select_dtypes(["int64", "uint64", "float64"]).items()
        if (cells.abs() >= 2**53).any()
        and (cells.dtype.kind != "f" or (cells.hasnans and (cells.dropna() % 1 == 0).all()))
    ]


def _all_digits(texts: "pd.Series[Any]") -> "pd.Series[Any]":
    """Numbers from text; whole ones in a type of pandas that has gaps, and more than 16 digits."""
    try:
        numbers = pd.to_numeric(texts, dtype_backend="numpy_nullable")
    except ValueError:  # text among them
        return texts
    return numbers.astype(np.float64) if dtypes.is_float_dtype(numbers.dtype) else numbers


def check_present(labels: "pd.Series[Any]", name: str) -> None:
    """Check that no label of a file is missing; the series has the name of the target.

    Raises:
        DataError: Some are.
    """
    absent = int(labels.isna().sum())
    if absent:
        raise DataError(
            f"Target column {labels.name!r} of {name} is missing in {absent} of {len(labels)} "
            "rows; remove those rows."
        )


def no_rows(name: str) -> DataError:
    """What to raise about a file with a header only."""
    return DataError(f"{name} has a header but no rows; give at least one row.")
