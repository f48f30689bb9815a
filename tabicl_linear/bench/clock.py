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


def timed(call: Callable[[], object], clock: Callable[[], float] = timer) -> float:
    """Seconds of a call, including its work on a device; for short calls the mean of many.

    Args:
        call: What is timed.
        clock: Tells seconds; `time.process_time` those that the process has computed.
    """
    start = clock()
    call()
    if (seconds := clock() - start) >= SHORT:
        return seconds
    repeated = Timer(
        "call()", globals={"call": call}, num_threads=torch.get_num_threads(), timer=clock
    )
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
    before = _kilobytes("VmRSS")
    call()
    return max(_kilobytes("VmHWM") - before, 0)


def _kilobytes(field: str) -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].split()[0]) * 1024
