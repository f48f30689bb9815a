"""Process behaviour of the training verbs: signals, warnings, log lines."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from multiprocessing import active_children
from pathlib import Path
from types import FrameType

from torch.multiprocessing import ProcessExitedException

from tabicl_linear.callbacks.run_checkpoint import StoppedBySignal
from tabicl_linear.checkpoint_file import load_checkpoint
from tabicl_linear.signals import STOP_SIGNALS


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
    """Raise `StoppedBySignal` if that is how a forked process ended, of which it says its code."""
    codes = {128 + signum: signum for signum in STOP_SIGNALS}
    if isinstance(error, ProcessExitedException) and error.exit_code in codes:
        signum = codes[error.exit_code]
        message = f"Stopped by {signum.name}"
        if checkpoint.exists():
            step = load_checkpoint(checkpoint, "resume with an older one")["global_step"]
            message += (
                f" after step {step}; resume with: tabicl-linear fit --ckpt_path {checkpoint}"
            )
        raise StoppedBySignal(signum, message) from error


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
