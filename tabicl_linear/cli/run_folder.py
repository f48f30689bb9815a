"""Run folders: one sub-folder of the root for each run, used by one process at a time."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tabicl_linear.callbacks.provenance import CONFIG
from tabicl_linear.callbacks.run_checkpoint import LAST, StoppedBySignal
from tabicl_linear.cli.launch import LostProcess, is_first_process
from tabicl_linear.cli.lock import locked
from tabicl_linear.cli.resume import Resume
from tabicl_linear.config_messages import BAD_INPUT, FULL
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import sweep


@dataclass(frozen=True)
class RunFolder:
    """The folder for config, checkpoints and metrics of a run.

    Only the first process makes and locks a folder. The others write nothing, and receive the path
    once all are connected (`RunCheckpoint.setup`); until then their `path` is the root, except in
    a resumed run.

    Attributes:
        path: The folder.
        is_new: Whether this run made it.
        root_is_new: Whether this run also made the root.
    """

    path: Path
    is_new: bool
    root_is_new: bool = False

    @classmethod
    def take(cls, root: Path, resume: Resume | None, locks: ExitStack) -> "RunFolder":
        """Lock the checkpoint's own run folder, or else a new `version_<n>` under `root`.

        A resumed run continues in the folder of its checkpoint, unless that is not a run folder or
        `root` was changed to one that does not contain it. Partial files of killed writers are
        removed.

        Args:
            root: The option `trainer.default_root_dir`.
            resume: The checkpoint to resume from, if any.
            locks: Receives the folder's lock, and holds it until it is closed.

        Raises:
            ConfigError: Another process trains in that folder, or `root` is a file, or its
                name is not UTF-8.
            OSError: The folder cannot be written to.
        """
        first = is_first_process()
        if resume is not None:
            own = resume.path.resolve().parent
            stored_root = Path(resume.config["trainer"]["default_root_dir"])
            if (own / CONFIG).is_file() and (root == stored_root or root.resolve() == own.parent):
                folder = cls(resume.path.parent, is_new=False)
                if first:
                    folder._lock(locks)
                    sweep(own)
                return folder
        if not first:
            return cls(root, is_new=False)
        root_is_new = not root.exists()
        folder = cls(_make_next(root), is_new=True, root_is_new=root_is_new)
        folder._lock(locks)
        return folder

    def _lock(self, locks: ExitStack) -> None:
        """Hold the folder's lock until `locks` is closed."""
        with self.dropped_if_unused():
            locks.enter_context(locked(self.path.resolve()))

    @contextmanager
    def dropped_if_unused(self) -> Iterator[None]:
        """Remove a new folder if the block fails before the run's first checkpoint.

        It may fail by bad input, by a signal, or because another process is lost. A root that
        existed before stays, as it may be the current folder, a link or a mounted disk. Errors of
        a full disk that name no file get the name of the folder.
        """
        try:
            yield
        except (*BAD_INPUT, StoppedBySignal, LostProcess) as error:
            if isinstance(error, OSError) and error.filename is None and error.errno in FULL:
                error.filename = str(self.path)
            if self.is_new and not (self.path / LAST).exists():
                shutil.rmtree(self.path, ignore_errors=True)
                if self.root_is_new:
                    with suppress(OSError):  # not empty if another run has begun in it
                        self.path.parent.rmdir()
            raise


def _make_next(root: Path) -> Path:
    """Make and return `version_<n>`, with n one above the largest number in use."""
    try:
        str(root).encode()
    except UnicodeEncodeError as error:  # TensorBoard's files could not be named
        raise ConfigError(
            f"trainer.default_root_dir={root}: the name is not UTF-8; rename the folder, or name "
            "another."
        ) from error
    if root.exists() and not root.is_dir():
        raise ConfigError(f"trainer.default_root_dir={root} is a file; name a folder.")
    names = (re.fullmatch(r"version_(\d+)", path.name) for path in root.glob("version_*"))
    numbers = [int(name[1]) for name in names if name]
    root.mkdir(parents=True, exist_ok=True)
    for number in count(max(numbers, default=-1) + 1):
        with suppress(FileExistsError):
            (root / f"version_{number}").mkdir()
            return root / f"version_{number}"
    raise AssertionError("count() has no end")
