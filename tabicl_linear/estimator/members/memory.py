"""How many rows memory has room for, and where the others are held meanwhile."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import Float32Array
from tabicl_linear.files import temporary_file

MIN_ROWS, MAX_ROWS = 256, 16384
"""Rows to have in a network at a time, as far as memory allows."""
ROW_BYTES = 2**17
"""An upper bound of what a row takes while it is computed: measured on a CPU with the weights that
ship (tokens per cell), 80 KiB with 10 columns and 118 KiB with 40; a row token takes less."""
SHRINK = 8
"""The second attempt has as many times fewer rows."""

Result = TypeVar("Result")


def rows_that_fit(device: torch.device) -> int:
    """Rows to have in a network at a time, in a power of two: they take at most half of the memory.

    That is `MAX_ROWS` wherever 4 GiB are free.
    """
    free = free_bytes(device)
    rows = MAX_ROWS
    while free is not None and rows > MIN_ROWS and rows * ROW_BYTES > free // 2:
        rows //= 2
    return rows


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be allocated on a device; None where the system does not tell.

    On Linux a container's limit counts, too.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cache = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + cache)
    system = Path("/proc/meminfo")
    if not system.exists():
        return None
    fields = dict(line.split(":", 1) for line in system.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    limit = group / "memory.max"
    if limit.exists() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most) - int((group / "memory.current").read_text()))
    return max(free, 0)


def retried_smaller(
    compute: Callable[[int], Result], rows: int, *, what: str, device: torch.device
) -> Result:
    """What `compute(rows)` returns; if memory runs out, what it returns for fewer rows at a time.

    Messages say what is computed, such as "fitting 1000 rows x 20 columns", and on which device.

    Raises:
        DataError: Memory ran out twice; the message says sizes and remedy.
    """
    try:
        return compute(rows)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    # Outside of the handler, whose traceback would keep the tensors of the first attempt.
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


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out: PyTorch has no class for that on a CPU."""
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "DefaultCPUAllocator" in str(error)
        or "not enough memory" in str(error)
    )


def stored(parts: Iterable[Float32Array], width: int, folder: Path) -> Float32Array:
    """Rows that come in parts as one array, in a temporary file that is gone once the array is.

    Raises:
        DataError: The folder has no room, or cannot be written.
    """
    with temporary_file(folder) as file:
        for part in parts:
            try:
                file.write(np.ascontiguousarray(part).data)
                file.flush()
            except OSError as error:
                raise DataError(
                    f"The temporary file of a long table cannot be written after {file.tell():,} "
                    f"bytes ({error.strerror}); set TMPDIR to a folder with more room."
                ) from error
        return np.memmap(file, np.float32, "r+").reshape(-1, width)
