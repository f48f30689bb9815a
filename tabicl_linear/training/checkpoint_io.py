"""Writes checkpoints for Lightning atomically, with checksums, and reads them."""

from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import TorchCheckpointIO

from tabicl_linear.checkpoint_file import load_checkpoint, save_checkpoint


class WholeFileIO(TorchCheckpointIO):
    """Writes a checkpoint to a file next to its target, then renames it; verifies what it reads.

    Lightning writes through the temporary folder: a killed write leaves a file of a checkpoint's
    size there for ever, and if that folder is full, a run ends although its own folder has room.
    URLs are left to Lightning.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write `checkpoint` to `path`; `OSError` if it cannot be written."""
        if storage_options is not None or "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_checkpoint(checkpoint, Path(path))

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read `path`; `CheckpointError` if it is damaged."""
        if "://" in str(path):
            return super().load_checkpoint(path, *args, **kwargs)
        return load_checkpoint(Path(path), "give a last.ckpt that `tabicl-linear fit` wrote")
