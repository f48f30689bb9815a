"""Atomic writes, after which a file is either complete or does not exist; digests of contents."""

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
"""Suffix of files that are being written. Those that a killed process leaves may be deleted."""
UNKNOWN = 0
"""Start time of a process if the system does not tell it."""

DIGEST = "digest"
"""Key of the digest of the other keys, in files of plain data."""


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, independent of the order of keys and of a digest in the data."""
    rest = {key: value for key, value in content.items() if key != DIGEST}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def checksum(path: Path) -> str:
    """SHA-256 of a file; raises OSError if it cannot be read."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data with its digest as JSON, atomically."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps({**content, DIGEST: digest_of(content)}, indent=1) + "\n")


def read_sealed(path: Path, remedy: str) -> dict[str, Any] | None:
    """Read data that `write_sealed` wrote, without the digest; None if there is no file.

    Raises:
        DamagedFile: The file has changed since it was written. The message ends with `remedy`.
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
    """Yield a temporary name next to `path` to write to.

    At the end the file is renamed to `path`; on errors it is removed. If `path` is a link, the file
    that it points to is replaced. The system's temporary folder is not used, since it may be on
    another, smaller disk. Files that killed writers of `path` have left are removed.

    Raises:
        OSError: The file cannot be written, or something that is not a file is in its place.
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
        if isinstance(error, OSError) and (
            # A copy to `partial` that fails names the file it copies first.
            error.filename is None or str(partial) in (error.filename, error.filename2)
        ):
            error.strerror = error.strerror or str(error)  # pandas: no such folder
            error.filename = str(path)  # for the message: the name that the user knows
        raise


def not_written(name: str, error: OSError) -> str:
    """What to say of a single file that could not be written, and what to do about it."""
    return (
        f"{name} cannot be written: {error.strerror or error}; name a file in a writable folder "
        "with enough room."
    )


def remedy_of(error: OSError) -> str:
    """What to do about a folder of results in which a file could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room and repeat the command to go on"
    return "name another folder"


def try_writing(path: Path) -> None:
    """Write a byte next to `path` and remove it, to find out before long work if that fails.

    Raises:
        OSError: There is no right to write, no room or no such folder.
    """
    partial = partial_name(path)
    try:
        partial.write_bytes(b"0")
    finally:  # also if a signal ends the command here
        partial.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Check that `path` is a file or does not exist, since a rename would replace even /dev/null.

    Raises:
        OSError: It is a folder, device, pipe or socket.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "It is a folder", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "It is a device, pipe or socket, and no file", str(path))


@contextmanager
def folder_written_whole(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `folder` to write into.

    At the end it is renamed to `folder`; on errors it is removed. An empty folder of that name is
    replaced. If `folder` is a link, the folder that it points to is replaced. What killed writers
    have left is removed.

    Raises:
        OSError: The folder cannot be made, or another one is in its place.
    """
    folder = folder.resolve() if folder.is_symlink() else folder
    _sweep_dead(folder.absolute())
    partial = partial_name(folder.absolute())
    partial.mkdir()
    try:
        yield partial
        sweep(partial)  # partial files of killed processes that wrote into it
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except BaseException:
        with suppress(OSError):  # so that other processes cannot go on writing into it
            partial = partial.rename(partial_name(folder.absolute()))
        shutil.rmtree(partial, ignore_errors=True)
        raise


def partial_name(path: Path) -> Path:
    """A unique temporary name for a file that will become `path`, another one at every call.

    It contains the host, as several may share the disk; the process id and its start time, as ids
    are reused; and random digits, as a process may have several writers.
    """
    process = os.getpid()
    writer = f"{_host()}-{process}-{_started(process)}-{secrets.token_hex(4)}"
    return path.with_name(f".{path.name}.{writer}{PARTIAL}")


def is_partial_of(path: Path, name: str) -> bool:
    """Whether a file name is that of a partial file of `path`, by any process."""
    return _writer_of(path).fullmatch(name) is not None


def _writer_of(path: Path) -> re.Pattern[str]:
    # Earlier versions wrote no random digits at the end.
    writer = r"([0-9a-f]{8})-(\d{1,10})-(\d+)(?:-[0-9a-f]{8})?"
    return re.compile(re.escape(f".{path.name}.") + writer + re.escape(PARTIAL))


def _sweep_dead(path: Path) -> None:
    """Delete the partial files of `path` whose writers ran on this host and have ended."""
    pattern = _writer_of(path)
    with suppress(OSError):  # if the folder cannot be read, the write itself reports an error
        for name in os.listdir(path.parent):
            writer = pattern.fullmatch(name)
            if writer and writer[1] == _host() and _has_ended(int(writer[2]), int(writer[3])):
                left = path.with_name(name)
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _host() -> str:
    """Eight hexadecimal digits that identify this host."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _has_ended(process: int, started: int) -> bool:
    """Whether the process does not exist, or has another start time and so is another one."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # a process of another user
        pass
    return _started(process) not in (UNKNOWN, started)


def _started(process: int) -> int:
    """Start time of a process in clock ticks since boot; `UNKNOWN` if the system does not tell."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return UNKNOWN
    return int(stat.rpartition(")")[2].split()[19])  # field 22; field 2, a name, may hold anything


def sweep(folder: Path) -> None:
    """Delete the partial files of killed writers; no writer may be active."""
    for partial in folder.glob(f".*{PARTIAL}"):
        partial.unlink(missing_ok=True)


def temporary_folder() -> Path:
    """The folder for temporary files (TMPDIR, or the system's), after a test that it is writable.

    Raises:
        DataError: There is none, or it cannot be written to.
    """
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:  # its message lists the folders that were tried
        raise _no_temporary("", error) from error
    try:
        try_writing(folder / "file")
    except OSError as error:
        raise _no_temporary(f" in {folder}", error) from error
    return folder


def temporary_file(folder: Path | None = None) -> BufferedRandom:
    """An unnamed file in a folder, or in that for temporary files; closing it deletes it.

    Raises:
        DataError: The folder cannot be written.
    """
    folder = folder or temporary_folder()
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise _no_temporary(f" in {folder}", error) from error


def write_temporary(file: BufferedRandom, data: memoryview, of: str) -> None:
    """Write data where a temporary file stands.

    Raises:
        DataError: The folder has no room; the file, which is named by what it is `of`, is closed.
    """
    start = file.tell()
    try:
        file.write(data)
        file.flush()
    except OSError as error:
        file.raw.close()  # else closing the file would try to write once more, and fail
        raise DataError(
            f"The temporary file of {of} cannot be written after {start:,} bytes "
            f"({error.strerror}); set TMPDIR to a folder with more room."
        ) from error


def _no_temporary(place: str, error: OSError) -> DataError:
    return DataError(
        f"No temporary file can be made{place} ({error.strerror}); set TMPDIR to a folder with "
        "room and the right to write."
    )
