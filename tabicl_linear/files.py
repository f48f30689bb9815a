"""Atomic writes: a file is either complete or does not exist. Digests of what it holds."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PARTIAL = ".partial"
"""Suffix of a file that is being written. Files left behind by a kill may be deleted."""


DIGEST = "digest"
"""Key of the digest of the other keys, in files of plain data."""


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, whatever the order of its keys; a digest in it does not count."""
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name in the folder of `path` to write to; renamed to `path` at the end, removed on errors.

    The temporary folder is not used, since it may be on another, smaller disk. What killed writers
    of the same file have left is removed.
    """
    _sweep_dead(path)
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


def _sweep_dead(path: Path) -> None:
    """Delete the partial files of `path` whose writers have ended."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"(\d{1,9})" + re.escape(PARTIAL))
    with suppress(OSError):  # without the folder, or the right to read it, writing will say so
        for name in os.listdir(path.parent):
            writer = pattern.fullmatch(name)
            if writer and not _is_alive(int(writer[1])):
                path.with_name(name).unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


def sweep(folder: Path) -> None:
    """Delete the partial files of killed writers; no writer may be active."""
    for partial in folder.glob(f".*{PARTIAL}"):
        partial.unlink(missing_ok=True)
