"""Checkpoint files of training: written atomically, read without running code, with checksums."""

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from tabicl_linear.errors import CheckpointError
from tabicl_linear.files import written_whole

FOLDER = 0x10
"""Attribute bit that marks an entry of a ZIP archive as a folder."""
UNREADABLE = (pickle.PickleError, AttributeError, TypeError)
"""Errors of objects that cannot be pickled, or cannot be read without running code."""


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a checkpoint to its own folder and flush it to the disk.

    It is looked at before it replaces another one: `torch.save` takes what `load_checkpoint` does
    not, such as a number of NumPy, and a run would be lost that is resumed days later.

    Raises:
        CheckpointError: It holds something that could not be read back. An existing file is
            unchanged, as by all errors.
        OSError: There is no room, or no right to write.
    """
    with written_whole(path) as partial, partial.open("wb") as file:
        try:
            torch.save(checkpoint, file)
            file.flush()
            torch.load(partial, map_location="meta", weights_only=True)
        except RuntimeError as error:
            # PyTorch's writer raises an error of its own in place of the file's (a full disk).
            hidden = error.__context__
            raise hidden if isinstance(hidden, OSError) else error from None
        except UNREADABLE as error:
            raise _refusal(checkpoint, path) from error
        os.fsync(file.fileno())


def _refusal(checkpoint: dict[str, Any], path: Path) -> CheckpointError:
    """Names the innermost part that cannot be read back."""
    part: Any = checkpoint
    place = ""
    while isinstance(part, dict | list | tuple):
        items = dict(part) if isinstance(part, dict) else dict(enumerate(part))
        key = next((key for key, value in items.items() if not _is_readable(value)), None)
        if key is None:
            break
        part, place = items[key], f"{place}[{key!r}]"
    return CheckpointError(
        f"{path} is not written, since it could not be read back: {place} in it is of "
        f"{type(part).__module__}.{type(part).__qualname__}; what callbacks, optimisers and "
        "schedules keep must be Python's numbers and texts, tensors, and lists and dictionaries "
        "of them."
    )


def _is_readable(part: Any) -> bool:
    buffer = io.BytesIO()
    try:
        torch.save(part, buffer)
        buffer.seek(0)
        torch.load(buffer, map_location="cpu", weights_only=True)
    except UNREADABLE:
        return False
    return True


def load_checkpoint(path: Path, remedy: str) -> dict[str, Any]:
    """Read a file of `torch.save`, without running code from it, and check its checksums.

    `torch.load` ignores the archive's checksums, and most files with a flipped bit would load with
    wrong weights.

    Args:
        path: The file.
        remedy: What to do instead, for the message.

    Raises:
        CheckpointError: The file is damaged, or not a checkpoint.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip() or _posing_as_folder(archive)
        checkpoint = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers may raise anything on files that are not checkpoints
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}: it is damaged or of "
            f"another program); {remedy}."
        ) from error
    if damaged:
        raise CheckpointError(
            f"{path} is damaged: the checksum of {damaged} in it does not match its content; "
            f"{remedy}."
        )
    if not isinstance(checkpoint, dict):
        raise CheckpointError(f"{path} is not a checkpoint of this package; {remedy}.")
    return checkpoint


def _posing_as_folder(archive: zipfile.ZipFile) -> str | None:
    """The first file in an archive that is marked as a folder: PyTorch would read it as empty."""
    names = (i.filename for i in archive.infolist() if i.external_attr & FOLDER and i.file_size)
    return next(names, None)
