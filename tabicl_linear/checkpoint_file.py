"""Checkpoint files of training: written whole, read without running code, checksums compared."""

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from tabicl_linear.errors import CheckpointError
from tabicl_linear.files import written_whole

FOLDER = 0x10
"""Bit of a folder among the attributes of an entry in an archive."""


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a checkpoint to the folder that it belongs to, through to the disk.

    Raises:
        OSError: There is no room, or no right to write; the file stays what it was.
    """
    with written_whole(path) as partial, partial.open("wb") as file:
        try:
            torch.save(checkpoint, file)
        except RuntimeError as error:
            # PyTorch's writer hides the file's own error, such as a full disk, behind its own.
            hidden = error.__context__
            raise hidden if isinstance(hidden, OSError) else error from None
        file.flush()
        os.fsync(file.fileno())


def load_checkpoint(path: Path, remedy: str) -> dict[str, Any]:
    """Read what `torch.save` wrote, without running code from it, and check its checksums.

    `torch.load` does not look at the checksums of the archive: of files with one flipped bit, most
    load, with other weights.

    Args:
        path: The file.
        remedy: What to do instead, for the message.

    Raises:
        CheckpointError: A damaged file, or one that is no checkpoint.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip() or _posing_as_folder(archive)
        checkpoint = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no checkpoint make the readers raise anything
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
    """The first file that is marked as a folder, of which PyTorch silently reads nothing."""
    marked = (i.filename for i in archive.infolist() if i.external_attr & FOLDER and i.file_size)
    return next(marked, None)
