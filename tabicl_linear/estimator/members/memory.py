"""How many rows fit into memory, and a temporary file for tables that do not."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import Float32Array
from tabicl_linear.files import temporary_file, write_temporary
from tabicl_linear.free_memory import free_bytes, is_out_of_memory

MIN_ROWS, MAX_ROWS = 256, 16384
"""Bounds of the number of rows in a network at a time; memory decides between them."""
ROW_BYTES = 2**17
"""An upper bound of the bytes that a row takes while it is computed. Measured on a CPU with the
weights that ship (tokens per cell): 80 KiB with 10 columns, 118 KiB with 40; row tokens take
less."""
SHRINK = 8
"""The second attempt has this many times fewer rows."""

Result = TypeVar("Result")


def rows_that_fit(wanted: int, device: torch.device) -> int:
    """How many of the wanted rows may be in a network at a time, in half of the free memory.

    At most `MAX_ROWS`, which are possible wherever 4 GiB are free.
    """
    if wanted <= MIN_ROWS:
        return wanted  # without asking the system, which takes a while for a prediction of one row
    free = free_bytes(device)
    rows = MAX_ROWS
    while free is not None and rows > MIN_ROWS and rows * ROW_BYTES > free // 2:
        rows //= 2
    return min(rows, wanted)


def retried_smaller(
    compute: Callable[[int], Result], rows: int, *, what: str, device: torch.device
) -> Result:
    """Return `compute(rows)` or, if memory runs out, the same with `SHRINK` times fewer rows.

    `what` tells the message what is computed, for example "fitting 1000 rows x 20 columns".

    Raises:
        DataError: Memory ran out twice; the message names sizes and remedies.
    """
    try:
        return compute(rows)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    # Outside the handler, whose traceback would keep the tensors of the first attempt alive.
    if device.type == "cuda":
        torch.cuda.empty_cache()
    fewer_rows = max(1, rows // SHRINK)
    try:
        return compute(fewer_rows)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        free = free_bytes(device)
        note = "" if free is None else f" ({free / 2**20:,.0f} MiB are free)"
        raise DataError(
            f"Memory ran out on {device}{note} while {what} with rows_per_batch={rows}, and again "
            f"with {fewer_rows}: give fewer rows or columns at a time, close other programs, or "
            "use a device with more memory."
        ) from error


def stored(parts: Iterable[Float32Array], width: int, folder: Path) -> Float32Array:
    """Rows that come in parts as one array, in a temporary file that goes when the array does.

    Raises:
        DataError: The folder has no room, or cannot be written.
    """
    with temporary_file(folder) as file:
        for part in parts:
            write_temporary(file, np.ascontiguousarray(part).data, "a long table")
        return np.memmap(file, np.float32, "r+").reshape(-1, width)
