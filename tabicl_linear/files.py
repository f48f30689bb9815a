"""Atomic writes: a file is either complete or does not exist. Digests of what it holds."""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path
from typing import Any

from tabicl_linear.errors import DamagedFile, DataError

PARTIAL = ".partial"
"""Suffix of a file that is being written. Files left behind by a kill may be deleted."""
UNKNOWN = 0
"""Time at which a process started where the system does not say it."""

DIGEST = "digest"
"""Key of the digest of the other keys, in files of plain data."""


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, whatever the order of its keys; a digest in it does not count."""
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data with its digest as JSON, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps({**content, DIGEST: digest_of(content)}, indent=1) + "\n")


def read_sealed(path: Path, remedy: str) -> dict[str, Any] | None:
    """What `write_sealed` was given; None where there is no file.

    Raises:
        DamagedFile: It is not what was written. The message ends with the remedy.
    """
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFile(path, f"it is no JSON: {error}", remedy) from error
    if not isinstance(content, dict) or DIGEST not in content:
        raise DamagedFile(path, "it has no digest", remedy)
    if content.pop(DIGEST) != digest_of(content):
        raise DamagedFile(path, "its digest is another", remedy)
    return content


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name in the folder of `path` to write to; renamed to `path` at the end, removed on errors.

    Where `path` is a link it stays one, and the file that it names is written. The temporary folder
    is not used, since it may be on another, smaller disk. What killed writers of the same file have
    left is removed.

    Raises:
        OSError: There is no place for it, or another thing than a file.
    """
    path = path.resolve() if path.is_symlink() else path
    check_replaceable(path)
    _sweep_dead(path)
    partial = partial_name(path)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # the name that the user knows, for the message
        raise


def try_writing(path: Path) -> None:
    """Write a byte beside `path` and remove it: before long work, and not after it.

    Raises:
        OSError: There is no place for it: no right to write, no room, no such folder.
    """
    partial = partial_name(path)
    try:
        partial.write_bytes(b"0")
    finally:  # also where a signal ends the command here
        partial.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Refuse a folder, and a device, pipe or socket, whose place a file could take (/dev/null's).

    Raises:
        OSError: It is one.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "It is a folder", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "It is a device, pipe or socket, and no file", str(path))


@contextmanager
def folder_written_whole(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to write into; renamed to it at the end, removed on errors.

    An empty folder of its name is replaced; where `folder` is a link it stays one. What killed
    writers have left is removed.

    Raises:
        OSError: There is no place for it.
    """
    folder = folder.resolve() if folder.is_symlink() else folder
    _sweep_dead(folder.absolute())
    partial = partial_name(folder.absolute())
    partial.mkdir()
    try:
        yield partial
        sweep(partial)  # what killed processes left that wrote into it
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except BaseException:
        with suppress(OSError):  # others that still write into it know it by its former name
            partial = partial.rename(partial_name(folder.absolute()))
        shutil.rmtree(partial, ignore_errors=True)
        raise


def partial_name(path: Path) -> Path:
    """Where what becomes `path` is written: a name that nobody else has, and another each time.

    It holds the host, as the disk may be that of several, the process, when it started, as numbers
    of processes are given again, and random digits, as a process may have several writers.
    """
    process = os.getpid()
    writer = f"{_host()}-{process}-{_started(process)}-{secrets.token_hex(4)}"
    return path.with_name(f".{path.name}.{writer}{PARTIAL}")


def is_partial_of(path: Path, name: str) -> bool:
    """Whether a file of this name is what some process has written of `path`."""
    return _writer_of(path).fullmatch(name) is not None


def _writer_of(path: Path) -> re.Pattern[str]:
    writer = r"([0-9a-f]{8})-(\d{1,10})-(\d+)(?:-[0-9a-f]{8})?"  # without: of earlier versions
    return re.compile(re.escape(f".{path.name}.") + writer + re.escape(PARTIAL))


def _sweep_dead(path: Path) -> None:
    """Delete the partial files of `path` whose writers ran on this host and have ended."""
    pattern = _writer_of(path)
    with suppress(OSError):  # without the folder, or the right to read it, writing will say so
        for name in os.listdir(path.parent):
            writer = pattern.fullmatch(name)
            if writer and writer[1] == _host() and _has_ended(int(writer[2]), int(writer[3])):
                left = path.with_name(name)
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _host() -> str:
    """Eight digits of this host."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _has_ended(process: int, started: int) -> bool:
    """Whether there is no such process, or one that started at another time."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # of another user
        pass
    return _started(process) not in (UNKNOWN, started)


def _started(process: int) -> int:
    """When a process started, in ticks since the machine did, where the system says it."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return UNKNOWN
    return int(stat.rpartition(")")[2].split()[19])  # field 22; the second may hold anything


def sweep(folder: Path) -> None:
    """Delete the partial files of killed writers; no writer may be active."""
    for partial in folder.glob(f".*{PARTIAL}"):
        partial.unlink(missing_ok=True)


def temporary_folder() -> Path:
    """The folder of temporary files, which takes some: that of TMPDIR, or the system's.

    Raises:
        DataError: It cannot be written, or there is none.
    """
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:  # which lists the folders that were tried
        raise _no_temporary("", error) from error
    try:
        try_writing(folder / "file")
    except OSError as error:
        raise _no_temporary(f" in {folder}", error) from error
    return folder


def temporary_file(folder: Path | None = None) -> BufferedRandom:
    """A file without a name in a folder, or in that of temporary files; closed, it is gone.

    Raises:
        DataError: The folder cannot be written.
    """
    folder = folder or temporary_folder()
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise _no_temporary(f" in {folder}", error) from error


def _no_temporary(place: str, error: OSError) -> DataError:
    return DataError(
        f"No temporary file can be made{place} ({error.strerror}); set TMPDIR to a folder with "
        "room and the right to write."
    )
