"""Cells of text: CSV and TSV files, also by gzip, whatever their name.

What such a file cannot say, the caller does (`TextFormat`).
"""

import gzip
import io
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.estimator.rows.labels import MISSING_WORDS, typed_labels

_GZIP_MAGIC = b"\x1f\x8b"


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


class TextCells:
    """The cells of a file of text, with the errors of pandas and gzip.

    Args:
        source: Where the file is, or what is in it.
        text: How it is read, with the character between fields.

    Attributes:
        columns: Names of its columns, as the header has them; one without a name has its place.
    """

    is_typed = False

    def __init__(self, source: Path | bytes, text: TextFormat) -> None:
        self._source, self._text = source, text
        self.columns = self._names()

    def labels(self, name: str) -> "pd.Series[Any]":
        """A column of the type that `typed_labels` says."""
        with self._bytes() as stream:
            options = self._options((), as_written=(name,))
            return typed_labels(pd.read_csv(stream, usecols=[name], **options)[name])

    def frame(self, texts: Sequence[str]) -> pd.DataFrame:
        """All rows; `texts` are columns that are text whatever they look like."""
        with self._bytes() as stream:
            frame = pd.read_csv(stream, **self._options(texts, self._text.as_written))
        rounded = [name for name in _long_numbers(frame) if frame[name].hasnans]
        if rounded:
            with self._bytes() as stream:
                options = self._options(rounded, as_written=())
                columns = pd.read_csv(stream, usecols=rounded, **options)
            for name in rounded:
                frame[name] = _all_digits(columns[name])
        return frame

    def pieces(
        self, names: Sequence[str], texts: Sequence[str], rows_per_piece: int
    ) -> Generator[pd.DataFrame, None, None]:
        """Frames of some columns, of which `texts` are text whatever a piece of them looks like.

        Long numbers of the first piece keep all digits in each: later pieces may have gaps.
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
        # All columns, since `usecols` would cut rows that are too long.
        options = self._options(texts, self._text.as_written)
        with (
            self._bytes() as stream,
            pd.read_csv(stream, chunksize=rows_per_piece, **options) as reader,
        ):
            yield from (piece for piece in reader if len(piece))

    def _names(self) -> list[str]:
        with self._bytes() as stream:
            # pandas would rename a name that occurs twice, and take the first fields of a row that
            # is longer than the header as names of the rows. As two rows of cells it takes the
            # header as it is, and refuses the longer one.
            header = pd.read_csv(
                stream,
                header=None,
                nrows=2,
                sep=self._text.sep,
                encoding=self._text.encoding,
                dtype=str,
                keep_default_na=False,
            )
        names = header.iloc[0].fillna("").tolist()
        return [name or f"Unnamed: {position}" for position, name in enumerate(names)]

    def _options(self, texts: Sequence[str], as_written: Sequence[str]) -> dict[str, Any]:
        """Arguments of `pandas.read_csv`."""
        return {
            "sep": self._text.sep,
            "encoding": self._text.encoding,
            "index_col": False,
            "dtype": dict.fromkeys((*as_written, *texts), str),
            "keep_default_na": False,
            "na_values": {
                name: ["", *self._text.na_values, *(() if name in as_written else MISSING_WORDS)]
                for name in self.columns
            },
            # In a file of one column an empty line is a row whose cell is missing.
            "skip_blank_lines": len(self.columns) > 1,
            # One type for each column of a piece.
            "low_memory": False,
        }

    @contextmanager
    def _bytes(self) -> Iterator[IO[bytes] | gzip.GzipFile]:
        source = self._source
        with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as stream:
            is_compressed = stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            stream.seek(0)
            if is_compressed:
                with gzip.GzipFile(fileobj=stream) as text:
                    yield text
            else:
                yield stream


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
