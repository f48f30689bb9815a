"""Seconds and peak memory of a call. Needs only torch."""

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.benchmark import Timer, timer

SHORT = 0.02
"""Calls that take fewer seconds are repeated for that long."""


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call, including its work on a device; for short calls the mean of many."""
    start = timer()
    call()
    seconds = timer() - start
    if seconds >= SHORT:
        return seconds
    repeated = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return repeated.blocked_autorange(min_run_time=SHORT).mean


def peak_bytes(call: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that a call needs at its peak beyond what was held before it; None if unknown.

    On CUDA the maximum that the caching allocator hands out. On a CPU the maximum resident memory:
    free memory of the C allocator is returned to the system first, then the kernel's high-water
    mark is reset (Linux only, None elsewhere). Both include libraries' work space; what libraries
    keep between calls counts only in the first call, so call it once before.
    """
    gc.collect(1)  # garbage of calls is young; a full collection takes longer than many calls
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not sys.platform.startswith("linux"):
        call()
        return None
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("self/status", "VmRSS")
    call()
    return max(_kilobytes("self/status", "VmHWM") - before, 0)


def available_bytes(device: torch.device) -> int | None:
    """Bytes that are still available on the device; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _kilobytes("meminfo", "MemAvailable") if sys.platform.startswith("linux") else None


def _kilobytes(file: str, field: str) -> int:
    lines = Path("/proc", file).read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
