"""Signals that stop a program, and what they do meanwhile."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Of schedulers and of Ctrl-C."""


@contextmanager
def handled(
    handler: signal.Handlers | Callable[[int, FrameType | None], object],
    *signals: signal.Signals,
) -> Iterator[None]:
    """Let a handler take some signals, except those that this process ignores.

    Only the main thread can; in others nothing changes.
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
    """Let signals end the process: an exception within imports can be lost, or end in a dump."""
    return handled(signal.SIG_DFL, *STOP_SIGNALS)


def exit_by(number: int, _: FrameType | None) -> NoReturn:
    """Leave by an exception, on which half-written files are removed."""
    sys.exit(128 + number)
