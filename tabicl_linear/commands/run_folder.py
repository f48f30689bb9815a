"""Run folders: one sub-folder of the root for each run, taken by one process only."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from tabicl_linear.callbacks.checkpoint import LAST, StoppedBySignal
from tabicl_linear.callbacks.provenance import CONFIG
from tabicl_linear.commands.resume import Resume


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps config, checkpoints and metrics.

    Attributes:
        path: The folder.
        is_new: Whether this run made it, rather than continuing in it.
    """

    path: Path
    is_new: bool

    @classmethod
    def take(cls, root: Path, resume: Resume | None) -> "RunFolder":
        """The checkpoint's own run folder, or else a new `version_<n>` under `root`.

        A resumed run continues in the folder of its checkpoint, unless that is no run folder or
        `root` was changed to one that does not hold it.
        """
        if resume is not None:
            own = resume.path.resolve().parent
            stored_root = Path(resume.config["trainer"]["default_root_dir"])
            if (own / CONFIG).is_file() and (root == stored_root or root.resolve() == own.parent):
                return cls(resume.path.parent, is_new=False)
        return cls(_make_next(root), is_new=True)

    @contextmanager
    def dropped_if_unused(self) -> Iterator[None]:
        """Leave no new folder behind where bad input or a signal comes before a checkpoint."""
        try:
            yield
        except (ValueError, MisconfigurationException, StoppedBySignal):
            if self.is_new and _is_first_process() and not (self.path / LAST).exists():
                shutil.rmtree(self.path, ignore_errors=True)
                if not any(self.path.parent.iterdir()):
                    self.path.parent.rmdir()
            raise


def _make_next(root: Path) -> Path:
    """Make `version_<n>`, n one above the largest in use; only the first process makes it."""
    names = (re.fullmatch(r"version_(\d+)", path.name) for path in root.glob("version_*"))
    used = [int(name[1]) for name in names if name]
    for number in count(max(used, default=-1) + 1):
        folder = root / f"version_{number}"
        if not _is_first_process():
            return folder
        root.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("count() has no end")


def _is_first_process() -> bool:
    return rank_zero_only.rank == 0  # type: ignore[attr-defined]
