"""Peak memory of a call."""

import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from tabicl_linear.bench.timing import Contestant

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def peak_bytes(call: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that a call needs at its peak beyond what was held before it; None if unknown.

    On CUDA what the caching allocator hands out at most. On a CPU what the process has resident at
    most: free memory of the C allocator goes back to the system first, then the kernel's
    high-water mark is reset (Linux only, None elsewhere). Libraries' work space is included in
    both, what they keep from one call to the next only in the first call, so call it once before.
    """
    gc.collect(1)  # what calls leave is young; a full collection takes longer than many calls
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not sys.platform.startswith("linux"):
        return None
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text(_RESET_PEAK)
    before = _status("VmRSS")
    call()
    return max(_status("VmHWM") - before, 0)


def peaks(
    contestants: Sequence[Contestant], device: torch.device
) -> dict[tuple[str, str], int | None]:
    """`peak_bytes` of every contestant, one after the other; ceilings are left out."""
    return {c.key: peak_bytes(c.call, device) for c in contestants if c.role != "ceiling"}


def available_bytes(device: torch.device) -> int | None:
    """Bytes that can still be had on the device; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if not sys.platform.startswith("linux"):
        return None
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def _status(field: str) -> int:
    return _kilobytes(_STATUS, field)


def _kilobytes(path: Path, field: str) -> int:
    line = next(line for line in path.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
