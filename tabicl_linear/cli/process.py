"""Process behaviour of the training verbs: signals, warnings, log lines."""

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from multiprocessing import active_children
from pathlib import Path
from types import FrameType

from torch.multiprocessing import ProcessExitedException

from tabicl_linear.callbacks.run_checkpoint import StoppedBySignal
from tabicl_linear.checkpoint_file import load_checkpoint
from tabicl_linear.files import temporary_file
from tabicl_linear.signals import STOP_SIGNALS

STDERR = 2
"""Number of the file."""


def raise_stopped(signum: int, frame: FrameType | None) -> None:
    """Let a signal end the program cleanly outside training, too.

    Processes of a training that this one has forked get the signal, and it ends after them.
    """
    forked = [process.pid for process in active_children() if not process.daemon]
    for process in filter(None, forked):
        os.kill(process, signum)
    if not forked:
        raise StoppedBySignal(signum, f"Stopped by {signal.Signals(signum).name}.")


def check_stopped(error: Exception, checkpoint: Path) -> None:
    """Raise `StoppedBySignal` if a forked process has ended with the exit code of a signal."""
    codes = {128 + signum: signum for signum in STOP_SIGNALS}
    if isinstance(error, ProcessExitedException) and error.exit_code in codes:
        signum = codes[error.exit_code]
        if not checkpoint.exists():
            raise StoppedBySignal(signum, f"Stopped by {signum.name}") from error
        step = load_checkpoint(checkpoint, "resume with an older one")["global_step"]
        raise StoppedBySignal.after(signum, step, checkpoint) from error


@contextmanager
def stderr_dropped_on(kind: type[Exception]) -> Iterator[None]:
    """Holds back standard error, also of libraries in C, and drops it if such an error is raised.

    Otherwise it is shown at the end.
    """
    sys.stderr.flush()
    before = os.dup(STDERR)
    with temporary_file() as held:
        os.dup2(held.fileno(), STDERR)
        try:
            yield
        except kind:
            sys.stderr.flush()
            held.truncate(0)
            raise
        finally:
            sys.stderr.flush()
            os.dup2(before, STDERR)
            os.close(before)
            held.seek(0)
            with open(STDERR, "wb", closefd=False) as stream:
                shutil.copyfileobj(held, stream)


@contextmanager
def writer_errors_said_once() -> Iterator[None]:
    """Leaves out the traceback of TensorBoard's thread where it cannot write.

    It hands the error on to the run, which ends by it.
    """
    before = threading.excepthook

    def show(error: threading.ExceptHookArgs) -> None:
        by_writer = type(error.thread).__module__.startswith("tensorboard.")
        if not (by_writer and isinstance(error.exc_value, OSError)):
            before(error)

    threading.excepthook = show
    try:
        yield
    finally:
        threading.excepthook = before


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
