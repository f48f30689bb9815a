"""How the processes of the training verbs handle signals, standard error and log lines."""

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
"""File descriptor of standard error."""


def raise_stopped(signum: int, frame: FrameType | None) -> None:
    """Handle a stop signal: raise `StoppedBySignal`, also outside training.

    If this process has forked the processes of a training, it passes the signal on to them
    instead, and ends after they have.
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
    """Hold back standard error, also that of C libraries, until the end of the block.

    It is dropped if an error of this kind is raised, and shown otherwise.
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
    """Suppress the traceback of TensorBoard's writer thread when it cannot write.

    TensorBoard raises the same error in the main thread, too, where it ends the run.
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

    All but warnings are held back until `show_log_lines`, so that an error in the options is the
    only output.
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
    """Show the lines that `log_lines` has held back, and all later ones immediately."""
    for handler in logging.getLogger("tabicl_linear").handlers:
        if isinstance(handler, MemoryHandler):
            handler.flushLevel = logging.NOTSET
            handler.flush()
