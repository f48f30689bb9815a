"""Writes `last.ckpt` and stops a signalled run, both only at the end of an accumulation window."""

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole
from tabicl_linear.signals import STOP_SIGNALS
from tabicl_linear.training.after_step import (
    KEY,
    AfterStep,
    StepProgress,
    has_stopped_early,
    rows_written,
    validation_follows,
)

LAST = "last.ckpt"
ONE_SIGNAL_SECONDS = 1.0
"""Signals within this time count as one: launchers repeat signals to the process group."""


class StoppedBySignal(SystemExit):
    """The process was asked to stop; the exit code, also of a forked process, is 128 + `signum`."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum, self.code = signum, 128 + signum

    @classmethod
    def after(cls, signum: int, step: int, checkpoint: Path) -> "StoppedBySignal":
        """The error of a run that has written a checkpoint after `step`, from which to resume."""
        return cls(
            signum,
            f"Stopped by {signal.Signals(signum).name} after step {step}; resume with: "
            f"tabicl-linear fit --ckpt_path {checkpoint}",
        )


class RunCheckpoint(Checkpoint):
    """Replaces `last.ckpt` in the run folder atomically, always right after an optimiser step.

    It is written when one of the intervals has passed, before a validation, after the last step
    (whatever ends the run), and when SIGTERM or SIGINT arrives; `StoppedBySignal` then ends the
    run. It is written once the metrics of the step have been logged, so that no kill can lose
    them. A second signal, more than a second later, ends the run at once. No checkpoint is taken
    inside an accumulation window; one that another callback takes there resumes from the window's
    start.

    Args:
        every_n_steps: Optimiser steps between checkpoints.
        every_minutes: Minutes between checkpoints, if these pass first.
        keep_every_n_steps: Steps between checkpoints that are also kept as `step_<n>.ckpt`; 0 for
            none.
        other_processes: Allow resuming a checkpoint with another number of processes. Further steps
            then use other datasets, and another number of them per step.

    Attributes:
        folder: The run folder; None until all processes are connected.
    """

    def __init__(
        self,
        every_n_steps: int = 1000,
        every_minutes: float = 5.0,
        keep_every_n_steps: int = 0,
        other_processes: bool = False,
    ) -> None:
        if every_n_steps < 1 or every_minutes <= 0 or keep_every_n_steps < 0:
            raise ConfigError(
                f"checkpoint.every_n_steps={every_n_steps}, every_minutes={every_minutes}, "
                f"keep_every_n_steps={keep_every_n_steps}: the first two must be positive, the "
                "last 0 or more; use --trainer.enable_checkpointing false for no checkpoints."
            )
        self.every_n_steps = every_n_steps
        self.every_minutes = every_minutes
        self.keep_every_n_steps = keep_every_n_steps
        self.other_processes = other_processes
        self._signum = 0  # the signal that this process has received; 0 for none
        self._signalled_at = 0.0
        self._held_stop = False  # a stop inside an accumulation window, delayed until its end
        self._ending_signum = 0  # the signal by which all processes have agreed to end
        self._window_open = False
        self._save_wanted = False
        self._left = AfterStep()
        self._validated = False  # whether a validation has ended since the last checkpoint
        self._seen_step = 0
        self._saved_step = 0
        self._saved_at = 0.0
        self.folder: Path | None = None
        self._progress: StepProgress | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Receive the run folder from the first process, and drop progress of earlier training."""
        self._progress = None
        self.folder = Path(trainer.strategy.broadcast(str(trainer.default_root_dir)))

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take over the checkpoint's progress.

        Raises:
            ConfigError: The checkpoint is of another number of processes, and `other_processes` is
                not set.
        """
        # Checkpoints of early versions do not hold the number of processes.
        before = checkpoint["provenance"].get("processes", trainer.world_size)
        if before != trainer.world_size and not self.other_processes:
            raise ConfigError(
                f"The checkpoint is of a run with {before} processes and this one has "
                f"{trainer.world_size}: its steps would use other datasets, and another number of "
                f"them; resume with {before}, or with --checkpoint.other_processes true."
            )
        self._left = AfterStep.read(checkpoint)
        key = type(trainer.datamodule).__qualname__  # type: ignore[attr-defined]
        self._progress = StepProgress(
            checkpoint["global_step"],
            checkpoint["loops"]["fit_loop"],
            {key: checkpoint[key]} if key in checkpoint else {},
        )

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Install signal handlers; Lightning's would stop inside an accumulation window."""
        self._catch_signals()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Install signal handlers and start the clock."""
        self._catch_signals()
        self._save_wanted = self._validated = False
        self._seen_step = self._saved_step = trainer.global_step
        self._saved_at = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Decide whether to save or stop, if this batch ended an accumulation window."""
        self._window_open = trainer.global_step == self._seen_step
        if self._window_open:
            self._hold_stop(trainer)
            return
        self._seen_step = trainer.global_step
        self._progress = StepProgress.of(trainer)
        trainer.should_stop = self._held_stop or trainer.should_stop
        self._left = AfterStep(validation_follows(trainer), trainer.should_stop)
        overdue, signum = self._agree(trainer, pl_module)
        self._save_wanted = bool(signum) or overdue or self._due(trainer)
        self._ending_signum = signum

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Store the progress as it was right after the last optimiser step.

        By the time of saving, batches of the next accumulation window may have been used, whose
        gradients are not stored. Or an epoch may have ended: if the number of steps is limited,
        Lightning counts it as unfinished and would resume with an epoch of one batch. If another
        callback saves after a step that this one has not seen yet, the trainer's own progress is
        right and is stored as it is.
        """
        left = AfterStep(validation_follows(trainer), trainer.should_stop)
        if self._progress is not None and self._progress.step == trainer.global_step:
            checkpoint["loops"]["fit_loop"] = self._progress.loops
            checkpoint.update(self._progress.data)
            left = self._left
        if not left.validation:
            # Early stopping inside a window is delayed; a resumed run starts that window again.
            ended = trainer.should_stop and not self._window_open
            left = left._replace(stop=ended and has_stopped_early(trainer))
        checkpoint[KEY] = left._replace(rows=rows_written(trainer))._asdict()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Save or stop before the next batch, when the last one's metrics have been logged."""
        self._save_if_wanted(trainer)
        if self._ending_signum:
            raise StoppedBySignal.after(self._ending_signum, trainer.global_step, self._last)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the last step, once more if a validation has followed it; stop after a signal."""
        if self._save_wanted or self._validated or trainer.global_step != self._saved_step:
            self._save(trainer)
        if self._ending_signum:
            raise StoppedBySignal.after(self._ending_signum, trainer.global_step, self._last)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save before a validation, which may take long."""
        self._save_if_wanted(trainer)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note that the validation is complete, for checkpoints that other callbacks save next."""
        if not self._window_open and not trainer.sanity_checking:
            self._left = AfterStep()
            self._validated = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delay early stopping until the end of the accumulation window."""
        if self._window_open:
            self._hold_stop(trainer)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Stop during a validation if a signal came and the checkpoint holds the current step."""
        is_saved = trainer.global_step == self._saved_step and not self._window_open
        if is_saved and self._signum and trainer.world_size == 1:
            raise StoppedBySignal.after(self._signum, trainer.global_step, self._last)

    @property
    def _last(self) -> Path:
        assert self.folder is not None, "`setup` comes before training"
        return self.folder / LAST

    def _hold_stop(self, trainer: Trainer) -> None:
        # max_time and early stopping ignore accumulation windows: delay them until this one closes.
        self._held_stop = self._held_stop or trainer.should_stop
        trainer.should_stop = False

    def _due(self, trainer: Trainer) -> bool:
        step = trainer.global_step
        return (
            step % self.every_n_steps == 0
            or self._kept(step)
            or step == trainer.max_steps
            or trainer.should_stop
            or self._left.validation
        )

    def _agree(self, trainer: Trainer, pl_module: LightningModule) -> tuple[bool, int]:
        """Whether a save is overdue, and which signal arrived (0: none); equal on all ranks."""
        overdue = time.monotonic() - self._saved_at >= 60 * self.every_minutes
        if trainer.world_size == 1:
            return overdue, self._signum
        flags = torch.tensor([float(overdue), float(self._signum)], device=pl_module.device)
        agreed = trainer.strategy.reduce(flags, reduce_op="max").tolist()
        return bool(agreed[0]), int(agreed[1])

    def _kept(self, step: int) -> bool:
        return self.keep_every_n_steps > 0 and step % self.keep_every_n_steps == 0

    def _save_if_wanted(self, trainer: Trainer) -> None:
        if self._save_wanted:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        """Write `last.ckpt`, after its copy `step_<n>.ckpt` if one is to be kept.

        A kill between the two then leaves an older `last.ckpt`, and the resumed run writes the copy
        again. In the other order the run would resume after the step of the missing copy.
        """
        step, last = trainer.global_step, self._last
        if self._kept(step):
            copy = last.with_name(f"step_{step:07d}.ckpt")
            trainer.save_checkpoint(copy, weights_only=False)
            if trainer.is_global_zero:
                _link(copy, last)
        else:
            trainer.save_checkpoint(last, weights_only=False)
        self._saved_step, self._save_wanted, self._validated = step, False, False
        self._saved_at = time.monotonic()

    def _catch_signals(self) -> None:
        # Lightning restores the previous handlers when the trainer is torn down.
        if threading.current_thread() is threading.main_thread():
            for signum in STOP_SIGNALS:
                signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._signum:
            self._signum, self._signalled_at = signum, now
        elif now - self._signalled_at > ONE_SIGNAL_SECONDS:
            raise StoppedBySignal(signum, "Stopped by a second signal, without a new checkpoint.")


def _link(source: Path, target: Path) -> None:
    """Make `target` a hard link to `source`, or a copy if the file system has no hard links."""
    with written_whole(target) as partial:
        partial.unlink(missing_ok=True)
        try:
            os.link(source, partial)
        except OSError:
            shutil.copyfile(source, partial)
