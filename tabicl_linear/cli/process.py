"""Process behaviour of the training verbs: signals, warnings, log lines."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from types import FrameType
from typing import NoReturn

from tabicl_linear.callbacks.run_checkpoint import StoppedBySignal


def raise_stopped(signum: int, frame: FrameType | None) -> NoReturn:
    """Let a signal end the program cleanly outside training, too."""
    raise StoppedBySignal(signum, f"Stopped by {signal.Signals(signum).name}.")


@contextmanager
def log_lines() -> Iterator[None]:
    """Show the package's log lines on standard error: which kernels are used, and why.

    They are held back until `show_log_lines`, so that an error of the options is all that is said;
    warnings are not.
    """
    logger = logging.getLogger("tabicl_linear")
    handler = MemoryHandler(1000, logging.WARNING, logging.StreamHandler(), flushOnClose=False)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def show_log_lines() -> None:
    """Show the lines that `log_lines` holds back, and further ones at once."""
    for handler in logging.getLogger("tabicl_linear").handlers:
        if isinstance(handler, MemoryHandler):
            handler.flushLevel = logging.NOTSET
            handler.flush()
