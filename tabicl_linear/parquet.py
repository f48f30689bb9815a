"""Parquet files that the project writes and reads back: written atomically, checked when read.

The metadata of a file hold a digest of all its bytes, so a damaged file is never parsed. For other
readers it is an ordinary Parquet file, whose pages have checksums. Users' own tables are read by
`estimator/rows/table_file.py`, not here.
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
"""Content of a column: whole numbers, floats (NaN if missing), booleans, or text."""

KEY = "tabicl_linear.digest"
"""Key of the digest in the metadata of a file."""
SEAL = b"tabicl_linear:sha256:"
"""Prefix of the 64 digits of the digest."""
OPEN = b"0" * (2 * hashlib.sha256().digest_size)
"""The digits in place of the digest while it is computed."""

DELETE = "delete it and repeat the command that makes it"


def write_table(
    path: Path,
    frame: pd.DataFrame,
    columns: Mapping[str, Kind] | None = None,
    *,
    metadata: Mapping[str | bytes, str | bytes] | None = None,
) -> None:
    """Write a table with its digest, atomically. The index is left out.

    Args:
        path: The file, which is replaced if it exists.
        frame: The table.
        columns: All columns with their kinds; not checked if None.
        metadata: Stored in the schema, for `pyarrow.parquet.read_schema`.

    Raises:
        OSError: The file cannot be written; an old one is unchanged.
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
        path: The file.
        columns: All columns with their kinds; not checked if None.
        remedy: What to do about a damaged file, for the message.

    Raises:
        DamagedFile: The file has changed since it was written, has other columns, or cannot be
            read.
    """
    content = check_file(path, remedy)
    # The digest is right, so the bytes are those written; if they cannot be parsed, they are not
    # from `write_table`.
    try:
        frame = pq.read_table(pa.BufferReader(content), page_checksum_verification=True).to_pandas()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DamagedFile(path, "it cannot be parsed", remedy) from error
    fault = None if columns is None else _fault(frame, columns)
    if fault is not None:
        raise DamagedFile(path, fault, remedy)
    return frame


def check_file(path: Path, remedy: str = DELETE) -> bytes:
    """Check the digest of a file that `write_table` wrote, without parsing it; return its bytes.

    Raises:
        DamagedFile: The file has changed since it was written, or cannot be read.
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
    """The bytes of a file with the digest in place of `OPEN`."""
    # The last occurrence: a cell may hold the same text, but the metadata come after all cells.
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
