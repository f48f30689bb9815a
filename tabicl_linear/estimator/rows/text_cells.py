"""Reads CSV and TSV files, also gzipped, whose cells are text.

`TextFormat` says what such a file does not say itself.
"""

import io
import re
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.labels import MISSING_WORDS, typed_labels
from tabicl_linear.estimator.rows.thousands import columns_of_thousands

_GZIP_MAGIC = b"\x1f\x8b"
_NO_TEXT = {
    b"PAR1\x15": "holds a Parquet table; name it .parquet, and give its name",
    b"PK\x03\x04": "is an archive, as Excel's workbooks are; save the table in it as CSV",
    b"ARROW1\0\0": "holds an Arrow table; save it as Parquet, or pass it in Python",
}
"""Files that are not text: their first bytes, what they are, and what to do."""

_MOST_OF_LINE = 1 << 20
"""Bytes at the end of a file among which its last line is sought."""


@dataclass(frozen=True)
class TextFormat:
    """How CSV and TSV files are read.

    Attributes:
        sep: Character between fields; None for a comma, or a tab in TSV files.
        encoding: Encoding of the text, as Python names it.
        na_values: Texts that count as missing, besides `MISSING_WORDS`.
        as_written: Columns of identifiers and labels, which stay text. There, only an empty field
            and `na_values` count as missing.
    """

    sep: str | None = None
    encoding: str = "utf-8"
    na_values: Sequence[str] = ()
    as_written: Sequence[str] = ()


class TextCells:
    """The cells of a text file; errors are those of pandas and gzip, and `DataError`.

    Args:
        source: The path of the file, or its content.
        text: How to read it; it must name the character between fields.

    Attributes:
        columns: Names of its columns, as in the header; a column without a name is named by its
            position.
    """

    is_typed = False

    def __init__(self, source: Path | bytes, text: TextFormat) -> None:
        self._source, self._text = source, text
        with self._bytes() as stream:
            start = stream.read(max(map(len, _NO_TEXT)))
        for magic, fault in _NO_TEXT.items():
            if start.startswith(magic):
                raise DataError(f"This is no text: the file {fault}.")
        self._compression = "gzip" if start.startswith(_GZIP_MAGIC) else None
        self.columns = self._names()

    def short_end(self) -> str | None:
        """The last line if it has fewer fields than the header, as in a file that was cut off.

        None also where the end of the file does not show it: in lines with an open quote, and in
        encodings whose line ends are not those of ASCII. (A gzip file says itself that it was cut.)
        """
        encoding = self._text.encoding
        if self._compression or b'\r\n""'.decode(encoding, errors="replace") != '\r\n""':
            return None
        with self._bytes() as stream:
            stream.seek(max(0, stream.seek(0, io.SEEK_END) - _MOST_OF_LINE))
            _, end, content = stream.read().rstrip(b"\r\n").rpartition(b"\n")
        line = content.decode(encoding, errors="replace")
        assert self._text.sep is not None
        num_fields = re.sub('"[^"]*"', "", line).count(self._text.sep) + 1
        is_whole = bool(end) and line.count('"') % 2 == 0
        return line if is_whole and num_fields < len(self.columns) else None

    def _bytes(self) -> IO[bytes]:
        source = self._source
        return source.open("rb") if isinstance(source, Path) else io.BytesIO(source)

    def labels(self, name: str) -> "pd.Series[Any]":
        """The column with this name, in the type that `typed_labels` decides."""
        return typed_labels(self._read((), as_written=(name,), usecols=[name])[name])

    def frame(self, texts: Sequence[str]) -> pd.DataFrame:
        """All rows; `texts` names columns that stay text, whatever their cells look like."""
        frame: pd.DataFrame = self._read(texts, self._text.as_written)
        _refuse_header(frame, num_before=0)
        rounded = [name for name in _long_numbers(frame) if frame[name].hasnans]
        if rounded:
            columns = self._read(rounded, as_written=(), usecols=rounded)
            for name in rounded:
                frame[name] = _all_digits(columns[name])
        return frame

    def thousands(self, frame: pd.DataFrame) -> dict[str, str]:
        """Columns whose points may separate thousands, with an example of each.

        `frame` holds the first rows as they were read; see `columns_of_thousands`.
        """
        assert self._text.sep is not None

        def texts_of(names: Sequence[str]) -> pd.DataFrame:
            columns: pd.DataFrame = self._read(names, (), usecols=names, nrows=len(frame))
            return columns

        return columns_of_thousands(frame, texts_of, self._text.sep)

    def pieces(
        self, names: Sequence[str], texts: Sequence[str], rows_per_piece: int
    ) -> Generator[pd.DataFrame, None, None]:
        """Frames of some columns with at most `rows_per_piece` rows; see `frame` for `texts`.

        Columns with long numbers in the first piece keep all digits in every piece, since later
        pieces may have gaps, for which pandas takes floats.
        """
        with closing(self._pieces(texts, rows_per_piece)) as pieces:
            first = next(pieces, None)
            if first is None:
                return
            long = _long_numbers(first)
            if not long:
                yield from (piece[names] for piece in chain([first], pieces))
                return
        with closing(self._pieces((*texts, *long), rows_per_piece)) as pieces:
            for piece in pieces:
                for name in long:
                    piece[name] = _all_digits(piece[name])
                yield piece[names]

    def _pieces(
        self, texts: Sequence[str], rows_per_piece: int
    ) -> Generator[pd.DataFrame, None, None]:
        # All columns are read, since `usecols` would silently cut rows that are too long.
        with self._read(texts, self._text.as_written, chunksize=rows_per_piece) as reader:
            num_before = 0
            for piece in reader:
                _refuse_header(piece, num_before)
                num_before += len(piece)
                if len(piece):
                    yield piece

    def _names(self) -> list[str]:
        """The names of the columns, read from the header."""
        # pandas would rename a name that occurs twice, and would take the first fields of a row
        # that is longer than the header as row names. Read as two rows of cells, the header stays
        # as it is, and a longer row is refused.
        header = self._read_csv(header=None, nrows=2, dtype=str)
        names = header.iloc[0].fillna("").tolist()
        return [name or f"Unnamed: {position}" for position, name in enumerate(names)]

    def _read(self, texts: Sequence[str], as_written: Sequence[str], **options: Any) -> Any:
        """Read cells; see `frame` for `texts`, and `TextFormat` for `as_written`."""
        return self._read_csv(
            index_col=False,
            dtype=dict.fromkeys((*as_written, *texts), str),
            na_values={
                name: ["", *self._text.na_values, *(() if name in as_written else MISSING_WORDS)]
                for name in self.columns
            },
            # In a file with one column, an empty line is a row with a missing cell.
            skip_blank_lines=len(self.columns) > 1,
            low_memory=False,  # one type for each column of a piece
            **options,
        )

    def _read_csv(self, **options: Any) -> Any:
        source = self._source if isinstance(self._source, Path) else io.BytesIO(self._source)
        return pd.read_csv(
            source,
            sep=self._text.sep,
            encoding=self._text.encoding,
            compression=self._compression,
            keep_default_na=False,
            **options,
        )


def _refuse_header(rows: pd.DataFrame, num_before: int) -> None:
    """Raise `DataError` if a row repeats the names of the columns, as where files were joined.

    Its words would make text of all numbers. `num_before` rows of the file come before these.
    """
    places = np.arange(len(rows) if rows.shape[1] > 1 else 0)
    for name, cells in rows.items():
        if not str(name).startswith("Unnamed: "):
            same = cells.iloc[places] == name
            places = places[same.to_numpy(dtype=bool, na_value=False)]
    if len(places):
        raise DataError(
            f"Row {num_before + places[0] + 1:,} repeats the header, as where files were joined; "
            "remove it."
        )


def _long_numbers(table: pd.DataFrame) -> list[str]:
    """Columns of whole numbers, some of which have more digits than floats hold exactly."""
    return [
        name
        for name, cells in table.select_dtypes(["int64", "uint64", "float64"]).items()
        if (cells.abs() >= 2**53).any()
        and (cells.dtype.kind != "f" or (cells.hasnans and (cells.dropna() % 1 == 0).all()))
    ]


def _all_digits(texts: "pd.Series[Any]") -> "pd.Series[Any]":
    """Numbers from text; whole ones keep all digits, in a pandas type that also holds gaps."""
    try:
        numbers = pd.to_numeric(texts, dtype_backend="numpy_nullable")
    except ValueError:  # some cells are not numbers
        return texts
    return numbers.astype(np.float64) if dtypes.is_float_dtype(numbers.dtype) else numbers
