"""Signals that stop a program, and how they are handled within a block."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""The signals that schedulers and Ctrl-C send."""


@contextmanager
def handled(
    handler: signal.Handlers | Callable[[int, FrameType | None], object],
    *signals: signal.Signals,
) -> Iterator[None]:
    """Install a handler for signals within the block, except for signals that are ignored.

    Only the main thread can do this; in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    not_ignored = [one for one in signals if signal.getsignal(one) != signal.SIG_IGN]
    former = {one: signal.signal(one, handler) for one in not_ignored}
    try:
        yield
    finally:
        for one, before in former.items():
            signal.signal(one, before)


def ended_at_once() -> AbstractContextManager[None]:
    """Let stop signals end the process within the block.

    It is for imports, in which an exception by a signal can be lost or cause a core dump.
    """
    return handled(signal.SIG_DFL, *STOP_SIGNALS)


def exit_by(number: int, _: FrameType | None) -> NoReturn:
    """A handler that exits by an exception, so that half-written files are removed."""
    sys.exit(128 + number)
