"""How the training verbs behave as a process: signals, warnings, log lines."""

import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from tabicl_linear.callbacks.checkpoint import STOP_SIGNALS, StoppedBySignal


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGINT end the program in order outside training, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {signum: signal.signal(signum, _raise_stopped) for signum in STOP_SIGNALS}
    try:
        yield
    finally:
        for signum, handler in former.items():
            signal.signal(signum, handler)


@contextmanager
def without_noise() -> Iterator[None]:
    """Hide what Lightning says that does not help here."""
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    logger.addFilter(_is_no_advertisement)
    try:
        with warnings.catch_warnings():
            # One process that draws is enough where the prior is cheap; it is an option.
            warnings.filterwarnings("ignore", message=".*does not have many workers")
            # What our stream draws follows from an index, which the data module keeps.
            warnings.filterwarnings("ignore", message=".*enabled train dataloader shuffling")
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable")
            # lightning 2.6 under torch 2.13.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            # LightningCLI calls what jsonargparse 4.53 deprecates.
            warnings.filterwarnings(
                "ignore",
                message=r"(?s).*(JSONARGPARSE|deprecated in v4)",
                category=DeprecationWarning,
            )
            yield
    finally:
        logger.removeFilter(_is_no_advertisement)


@contextmanager
def log_lines() -> Iterator[None]:
    """Show on standard error what the package logs: which kernels are used, and why."""
    logger, handler = logging.getLogger("tabicl_linear"), logging.StreamHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _is_no_advertisement(record: logging.LogRecord) -> bool:
    return "Tip: For seamless" not in record.getMessage()


def _raise_stopped(signum: int, frame: FrameType | None) -> NoReturn:
    raise StoppedBySignal(signum, f"Stopped by {signal.Signals(signum).name}.")
