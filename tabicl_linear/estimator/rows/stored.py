"""Rows in a temporary file, where memory has no room for them."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from tabicl_linear.errors import DataError


def stored(
    parts: Iterable[npt.NDArray[np.float32]], width: int, folder: Path
) -> npt.NDArray[np.float32]:
    """Rows of such a width, given in parts, in an unnamed temporary file that goes with the array.

    Raises:
        DataError: The folder has no room.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        for part in parts:
            _append(file, np.ascontiguousarray(part).data)
        return np.memmap(file, np.float32, "r+").reshape(-1, width)


def _append(file: IO[bytes], data: memoryview) -> None:
    try:
        file.write(data)
        file.flush()
    except OSError as error:
        raise DataError(
            f"The temporary file of a long table cannot be written after {file.tell():,} bytes "
            f"({error.strerror}); set TMPDIR to a folder with more room."
        ) from error
