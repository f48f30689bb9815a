"""`tabicl-linear fit` as a child process, in the trunk's folder or in that of a decay."""

import fcntl
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

from experiments.pretrain_default.budget import Clock, Spent
from tabicl_linear.cli.resume import Resume
from tabicl_linear.signals import STOP_SIGNALS, handled

ROOT = Path(__file__).parents[2]
CHECKPOINT = "last.ckpt"
STOPPED = {0, *(-signum for signum in STOP_SIGNALS), *(128 + signum for signum in STOP_SIGNALS)}
"""Exit codes of a training that finished or was asked to stop."""
POLL_SECONDS = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
KEEP_SECONDS = 10.0
"""Seconds between records of the time spent, so that little is lost in a kill."""


class OutputInUse(RuntimeError):
    """Another leg, or the training of a killed one, still writes to the folder."""


class Training:
    """Runs trainings in an output folder, one at a time, and passes on signals.

    Attributes:
        signum: The signal that this process got, or 0.

    Args:
        output: Folder of the run.
        configs: Config files, later ones overriding earlier ones.
        device: cpu or cuda.
        options: Further options of `tabicl-linear fit`.
        errors: File for what the last training said on standard error; None passes it on.
    """

    def __init__(
        self,
        output: Path,
        configs: Sequence[Path],
        device: str,
        options: Sequence[str] = (),
        *,
        errors: Path | None = None,
    ) -> None:
        self.signum = 0
        self._output = output
        self._configs = configs
        self._device = device
        self._options = options
        self._errors = errors
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = -1

    @contextmanager
    def taking_signals(self) -> Iterator[None]:
        """Hold the output folder, and pass signals on to the child, within the block.

        Raises:
            OutputInUse: The folder is held already.
        """
        with (self._output / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OutputInUse(
                    f"{self._output} is in use: wait for the training there, or end it."
                ) from error
            # The child inherits the lock, since it may outlive this process if that is killed.
            self._lock = lock.fileno()
            with handled(self._pass_on, *STOP_SIGNALS):
                yield

    def run(
        self,
        folder: Path,
        start: Path | None,
        options: Sequence[str],
        *,
        keep: Callable[[Spent], None],
        minutes: float | None = None,
        clock: Clock = "wall",
    ) -> Spent:
        """Train until the steps are taken or the minutes are over.

        Args:
            folder: Contains the run folder; if `start` is inside it, the run continues there.
            start: Checkpoint to resume from.
            options: Options of this training.
            keep: Called with the time spent so far, at intervals and at the end.
            minutes: Minutes after which the training is asked to stop.
            clock: Whether minutes are wall time or CPU time.

        Returns:
            The time spent.

        Raises:
            subprocess.CalledProcessError: Training failed.
        """
        command = self._command(folder, start, options)
        children = _seconds_of_children()
        began = kept = time.monotonic()
        with nullcontext() if self._errors is None else self._errors.open("wb") as errors:
            # The child has its own handle of the file.
            self._child = child = subprocess.Popen(
                command, cwd=ROOT, pass_fds=(self._lock,), stderr=errors
            )
        if self.signum:  # it came before there was a child to pass it on to
            child.send_signal(self.signum)
        overdue = False
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            spent = Spent((now - began) / 60, cpu_seconds(child.pid) / 60)
            if now - kept > KEEP_SECONDS:
                kept = now
                keep(spent)
            if not overdue and minutes is not None and getattr(spent, clock) >= minutes:
                overdue = True
                child.terminate()
        spent = Spent((time.monotonic() - began) / 60, (_seconds_of_children() - children) / 60)
        keep(spent)
        if child.returncode not in STOPPED:
            raise subprocess.CalledProcessError(child.returncode, command)
        return spent

    def _command(self, folder: Path, start: Path | None, options: Sequence[str]) -> list[str]:
        command = [sys.executable, "-m", "tabicl_linear", "fit"]
        for path in self._configs:
            command += ["--config", str(path)]
        # Stored in checkpoints, which may be copied, so relative to the repository if it is inside.
        root = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
        command += ["--trainer.default_root_dir", str(root)]
        command += ["--trainer.enable_model_summary", "false", "--trainer.devices", "1"]
        command += ["--trainer.accelerator", "gpu" if self._device == "cuda" else "cpu"]
        command += [*self._options, *options]
        return command if start is None else [*command, "--ckpt_path", str(start)]

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signum)


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of the runs in a folder; None before the first."""
    checkpoints = folder.glob(f"version_*/{CHECKPOINT}")
    return max(checkpoints, key=lambda path: path.stat().st_mtime, default=None)


def newest_step(folder: Path) -> int:
    """Optimiser steps of the newest checkpoint; 0 before the first."""
    checkpoint = newest_checkpoint(folder)
    return 0 if checkpoint is None else Resume.read(checkpoint).step


def cpu_seconds(pid: int) -> float:
    """CPU time of a running child over all threads; 0 if the system does not report it.

    Linux reports it while the child runs; elsewhere it is known only at the end.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    # User and system time of the process and of children that it has waited for (proc(5)).
    return sum(map(int, fields[11:15])) / _TICKS


def _seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
