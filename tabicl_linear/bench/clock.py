"""Seconds of a call. Needs only torch."""

from collections.abc import Callable

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
