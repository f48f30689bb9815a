"""Parquet files that the project writes and reads back: whole, sealed, and checked when read.

A file carries a digest of all its bytes in its own metadata, so that no changed bit is ever parsed.
Any other reader of Parquet takes such a file as it is; its pages have checksums for readers that
check those. Tables that people bring (`estimator/rows/table_file.py`) are not read here.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tabicl_linear.errors import DamagedFile
from tabicl_linear.files import written_whole

Kind = Literal["whole", "number", "flag", "text"]
"""Of a column: whole numbers, numbers (NaN where there is none), truth values, texts."""

KEY = "tabicl_linear.digest"
"""Of the digest in the metadata of a file."""
SEAL = b"tabicl_linear:sha256:"
"""What stands before the 64 digits."""
OPEN = b"0" * (2 * hashlib.sha256().digest_size)
"""The digits while the digest is taken."""

DELETE = "delete it and repeat the command that makes it"


def write_table(
    path: Path,
    frame: pd.DataFrame,
    columns: Mapping[str, Kind] | None = None,
    *,
    metadata: Mapping[str | bytes, str | bytes] | None = None,
) -> None:
    """Write a table with its digest, whole or not at all. The index is left out.

    Args:
        path: Of the file, which is replaced.
        frame: The table.
        columns: All columns and what each holds; not checked if None.
        metadata: Kept in the schema, for `pyarrow.parquet.read_schema`.

    Raises:
        OSError: The file cannot be written; an old one is still there.
    """
    fault = None if columns is None else _fault(frame, columns)
    assert fault is None, f"{path}: {fault}"
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **(metadata or {})})
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(stream, table.schema, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({KEY: SEAL + OPEN})
    content = stream.getvalue().to_pybytes()
    with written_whole(path) as partial:
        partial.write_bytes(_sealed(content))


def read_table(
    path: Path, columns: Mapping[str, Kind] | None = None, *, remedy: str = DELETE
) -> pd.DataFrame:
    """Read a table that `write_table` wrote.

    Args:
        path: Of the file.
        columns: All columns and what each holds; not checked if None.
        remedy: What to do with a damaged file, for the message.

    Raises:
        DamagedFile: It is not what was written, or has other columns, or cannot be read.
    """
    content = check_file(path, remedy)
    # Bytes that are those written: whatever cannot be parsed now was never written by us.
    try:
        frame = pq.read_table(pa.BufferReader(content), page_checksum_verification=True).to_pandas()
    except (OSError, ValueError) as error:  # those of pyarrow are ValueErrors
        raise DamagedFile(path, "it cannot be parsed", remedy) from error
    fault = None if columns is None else _fault(frame, columns)
    if fault is not None:
        raise DamagedFile(path, fault, remedy)
    return frame


def check_file(path: Path, remedy: str = DELETE) -> bytes:
    """Check the digest of a file that `write_table` wrote, without parsing it; return its bytes.

    Raises:
        DamagedFile: It is not what was written, or cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedFile(path, f"it cannot be read: {error.strerror}", remedy) from error
    start = content.rfind(SEAL) + len(SEAL)
    if start < len(SEAL):
        raise DamagedFile(path, "it has no digest", remedy)
    end = start + len(OPEN)
    digest = hashlib.sha256(content[:start] + OPEN + content[end:]).hexdigest()
    if content[start:end] != digest.encode():
        raise DamagedFile(path, "its digest is another", remedy)
    return content


def _sealed(content: bytes) -> bytes:
    """A file with the digest of itself as it was with an open seal."""
    # The last place: a cell may hold the same text, and cells stand before the metadata.
    place = content.rfind(SEAL + OPEN)
    assert place >= 0, "the metadata hold the seal"
    start = place + len(SEAL)
    digest = hashlib.sha256(content).hexdigest().encode()
    return content[:start] + digest + content[start + len(OPEN) :]


def _fault(frame: pd.DataFrame, columns: Mapping[str, Kind]) -> str | None:
    """What is wrong with the columns of a table; None if nothing is."""
    absent = [name for name in columns if name not in frame]
    further = [str(name) for name in frame if name not in columns]
    if absent or further or not frame.columns.is_unique:
        names = ", ".join(map(str, frame.columns))
        return f"it has the columns {names} and not {', '.join(columns)}"
    for name, kind in columns.items():
        if not _holds(frame[name], kind):
            return f"its column {name} holds {frame[name].dtype} and not {kind}"
    return None


def _holds(cells: pd.Series, kind: Kind) -> bool:
    types = pd.api.types
    if kind == "whole":
        return types.is_integer_dtype(cells.dtype)
    if kind == "number":
        return types.is_float_dtype(cells.dtype)
    if kind == "flag":
        return types.is_bool_dtype(cells.dtype)
    return types.is_string_dtype(cells) and not bool(cells.isna().any())
