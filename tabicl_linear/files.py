"""Files that are either whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"
"""Suffix of a file that is being written. What a kill left behind may be deleted."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; renamed to `path` at the end, removed on an error.

    Never in the temporary folder, which may be another disk, and a smaller one.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # that of the user, for the message
        raise


def sweep(folder: Path) -> None:
    """Delete the partial files of writers that were killed; none may be at work."""
    for partial in folder.glob(f".*{PARTIAL}"):
        partial.unlink(missing_ok=True)
