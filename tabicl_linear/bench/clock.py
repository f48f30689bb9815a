"""Times a call. Imports nothing besides torch."""

from collections.abc import Callable

import torch
from torch.utils.benchmark import Timer, timer

SHORT = 0.02
"""Calls that take fewer seconds than this are repeated for as long."""


def timed(call: Callable[[], object], clock: Callable[[], float] = timer) -> float:
    """Return the seconds of a call with its work on a device; for short calls, the mean of many.

    Args:
        call: The call to time.
        clock: Returns the time in seconds; `time.process_time` for CPU time.
    """
    start = clock()
    call()
    if (seconds := clock() - start) >= SHORT:
        return seconds
    repeated = Timer(
        "call()", globals={"call": call}, num_threads=torch.get_num_threads(), timer=clock
    )
    return repeated.blocked_autorange(min_run_time=SHORT).mean
