"""`tabicl-linear fit` as a child process: one part of a leg, from checkpoint to checkpoint."""

import fcntl
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from experiments.pretrain_default import budget as budgets
from experiments.pretrain_default.budget import Budget

ROOT = Path(__file__).parents[2]
CHECKPOINT = "last.ckpt"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOPPED = {0, *(-signum for signum in SIGNALS), *(128 + signum for signum in SIGNALS)}
"""Exit codes of a training that came to its end or was asked to stop."""
POLL_SECONDS = 0.5
KEEP_SECONDS = 10.0
"""The budget is written this often, so that a kill costs little of its account."""


class OutputInUse(RuntimeError):
    """Another leg, or the training that a killed one left behind, still writes there."""


class Training:
    """Runs trainings in an output folder, one at a time, and passes on the signals it gets.

    Attributes:
        signum: The signal that this process got, or 0.
    """

    def __init__(self, output: Path, configs: list[Path], device: str) -> None:
        self.signum = 0
        self.budget_path = output / "budget.json"
        self._output = output
        self._configs = configs
        self._device = device
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
            # The child inherits the lock: it may outlive a process that is killed.
            self._lock = lock.fileno()
            former = {signum: signal.signal(signum, self._pass_on) for signum in SIGNALS}
            try:
                yield
            finally:
                for signum, handler in former.items():
                    signal.signal(signum, handler)

    def checkpoint(self) -> Path | None:
        """The newest checkpoint; None before the first."""
        found = self._output.glob(f"version_*/{CHECKPOINT}")
        return max(found, key=lambda path: path.stat().st_mtime, default=None)

    def run(self, budget: Budget, minutes: float) -> Budget:
        """Train until the total is reached or the minutes are over; return the budget then.

        Raises:
            subprocess.CalledProcessError: Training failed.
        """
        command = self._command(budget.total_steps)
        began = kept = time.monotonic()
        self._child = subprocess.Popen(command, cwd=ROOT, pass_fds=(self._lock,))
        overdue = False
        while self._child.poll() is None:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if now - kept > KEEP_SECONDS:
                kept = now
                budgets.save(budget.spend((now - began) / 60), self.budget_path)
            if not overdue and now - began >= 60 * minutes:
                overdue = True
                self._child.terminate()
        if self._child.returncode not in STOPPED:
            raise subprocess.CalledProcessError(self._child.returncode, command)
        budget = budget.spend((time.monotonic() - began) / 60)
        budgets.save(budget, self.budget_path)
        return budget

    def _command(self, total_steps: int) -> list[str]:
        command = [sys.executable, "-m", "tabicl_linear", "fit"]
        for path in self._configs:
            command += ["--config", str(path)]
        command += ["--trainer.default_root_dir", str(self._output)]
        command += ["--trainer.enable_model_summary", "false", "--trainer.devices", "1"]
        command += ["--trainer.accelerator", "gpu" if self._device == "cuda" else "cpu"]
        command += ["--trainer.max_steps", str(total_steps)]
        checkpoint = self.checkpoint()
        return command if checkpoint is None else [*command, "--ckpt_path", str(checkpoint)]

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signum)
