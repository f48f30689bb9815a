"""Checkpoint files of training: written atomically, read without running code, with checksums."""

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from tabicl_linear.errors import CheckpointError
from tabicl_linear.files import written_whole

FOLDER = 0x10
"""Attribute bit that marks an entry of a ZIP archive as a folder."""


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a checkpoint to its own folder and flush it to the disk.

    Raises:
        OSError: There is no room, or no right to write; an existing file is unchanged.
    """
    with written_whole(path) as partial, partial.open("wb") as file:
        try:
            torch.save(checkpoint, file)
        except RuntimeError as error:
            # PyTorch's writer raises an error of its own in place of the file's (a full disk).
            hidden = error.__context__
            raise hidden if isinstance(hidden, OSError) else error from None
        file.flush()
        os.fsync(file.fileno())


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
