"""Atomic writes: a file is either complete or does not exist."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"
"""Suffix of a file that is being written. Files left behind by a kill may be deleted."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name in the folder of `path` to write to; renamed to `path` at the end, removed on errors.

    The temporary folder is not used, since it may be on another, smaller disk.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # the name that the user knows, for the message
        raise


def give_usual_mode(path: Path) -> None:
    """Give a file the permissions of files that this process creates."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def sweep(folder: Path) -> None:
    """Delete the partial files of killed writers; no writer may be active."""
    for partial in folder.glob(f".*{PARTIAL}"):
        partial.unlink(missing_ok=True)
