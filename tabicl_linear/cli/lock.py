"""Locks a run folder, so that only one process at a time trains in it."""

import errno
import fcntl
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tabicl_linear.errors import ConfigError

LOCK = ".lock"
_held: set[int] = set()


def _close_in_child() -> None:
    # The workers that draw data are forked, and may outlive a killed run by seconds. A lock is held
    # as long as any process has its file open, so they close theirs at once.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def locked(folder: Path, name: str = LOCK, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock of the folder within the block, or until the process ends.

    Locks with different names are independent. A lock taken with `shared=True` can be held by
    several processes at a time, as long as all of them share it.

    Raises:
        ConfigError: Another process holds it, and one of the two does not share it.
        OSError: The folder cannot be written to.
    """
    path = folder / name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _held.add(descriptor)
    try:
        _acquire(descriptor, folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        # A forked child has closed its copy, and may have reused the descriptor.
        if descriptor in _held:
            _held.remove(descriptor)
            os.close(descriptor)


def _acquire(descriptor: int, folder: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
        raise ConfigError(
            f"{folder} is in use by {holder}, which works there: wait until it ends, or stop it."
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        warnings.warn(
            f"{folder}: this file system has no locks ({error.strerror}); a second process could "
            "train there at the same time.",
            UserWarning,
            stacklevel=4,
        )
