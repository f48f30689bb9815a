"""Keeps `last.ckpt` and stops a signalled run, both at the end of an accumulation window only."""

import os
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

LAST = "last.ckpt"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ONE_SIGNAL_SECONDS = 1.0
"""Signals within this time are one: launchers pass on what the process group has got as well."""


class StoppedBySignal(BaseException):
    """The process was asked to stop; the exit code is 128 + `signum`."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum


class RunCheckpoint(Checkpoint):
    """Replaces `last.ckpt` in the run folder as a whole, always right after an optimiser step.

    It is written when one of the intervals is over, before a validation, after the last step, and
    when SIGTERM or SIGINT arrives; then `StoppedBySignal` ends the run. A second signal, more than
    a second later, ends it at once. Because every checkpoint is taken at the same point of
    Lightning's loop, all of them resume alike, and none lies inside an accumulation window.

    Args:
        every_n_steps: Optimiser steps between checkpoints.
        every_minutes: Minutes between checkpoints, where this is sooner.
        keep_every_n_steps: Also keep a copy `step_<n>.ckpt` each so many steps; none if 0.
        other_processes: Resume a checkpoint with another number of processes. The steps to come
            then take other datasets, and as many more or fewer as there are processes.
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
        self._signum = 0
        self._signalled_at = 0.0
        self._stop_wanted = False
        self._ending = 0
        self._window_open = False
        self._seen_step = 0
        self._saved_step = 0
        self._saved_at = 0.0

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Refuse a checkpoint of another number of processes, unless that is asked for.

        Raises:
            ConfigError: The number differs.
        """
        # Checkpoints of versions that could not tell hold no number.
        before = checkpoint["provenance"].get("processes", trainer.world_size)
        if before != trainer.world_size and not self.other_processes:
            raise ConfigError(
                f"The checkpoint is of a run with {before} processes and this one has "
                f"{trainer.world_size}: its steps would take other datasets, and other numbers of "
                f"them; resume with {before}, or with --checkpoint.other_processes true."
            )

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over the signals; Lightning would stop inside an accumulation window."""
        self._catch_signals()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over the signals and start the clock."""
        self._catch_signals()
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
        """Save and stop where due, if this batch closed an accumulation window."""
        self._window_open = trainer.global_step == self._seen_step
        if self._window_open:
            # max_time and early stopping do not look at windows: hold their wish until it closes.
            self._stop_wanted = self._stop_wanted or trainer.should_stop
            trainer.should_stop = False
            return
        self._seen_step = trainer.global_step
        trainer.should_stop = self._stop_wanted or trainer.should_stop
        overdue, signum = self._agree(trainer, pl_module)
        if signum or overdue or self._due(trainer):
            self._save(trainer, LAST)
            self._saved_step = trainer.global_step
            self._saved_at = time.monotonic()
        if self.keep_every_n_steps and trainer.global_step % self.keep_every_n_steps == 0:
            self._save(trainer, f"step_{trainer.global_step:07d}.ckpt")
        self._ending = signum

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Stop before the next batch: only now do the loggers have the metrics of the last one."""
        if self._ending:
            self._stop(trainer, self._ending)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop where there is no next batch."""
        if self._ending:
            self._stop(trainer, self._ending)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Stop inside a validation if the checkpoint already holds the current step."""
        saved = trainer.global_step == self._saved_step and not self._window_open
        if saved and self._signum and trainer.world_size == 1:
            self._stop(trainer, self._signum)

    def _due(self, trainer: Trainer) -> bool:
        step = trainer.global_step
        batches = trainer.fit_loop.total_batch_idx + 1
        interval = trainer.val_check_batch
        validation = isinstance(interval, int) and batches % interval == 0
        return (
            step % self.every_n_steps == 0
            or step == trainer.max_steps
            or trainer.should_stop
            or validation
        )

    def _agree(self, trainer: Trainer, pl_module: LightningModule) -> tuple[bool, int]:
        """Whether time is up and which signal came, the same answer on all ranks."""
        overdue = time.monotonic() - self._saved_at >= 60 * self.every_minutes
        if trainer.world_size == 1:
            return overdue, self._signum
        flags = torch.tensor([float(overdue), float(self._signum)], device=pl_module.device)
        agreed = trainer.strategy.reduce(flags, reduce_op="max").tolist()
        return bool(agreed[0]), int(agreed[1])

    def _save(self, trainer: Trainer, name: str) -> None:
        folder = Path(trainer.default_root_dir)
        partial = folder / f"{name}.partial"
        trainer.save_checkpoint(partial, weights_only=False)
        if trainer.is_global_zero:
            os.replace(partial, folder / name)

    def _catch_signals(self) -> None:
        # Lightning puts the former handlers back when the trainer is torn down.
        if threading.current_thread() is threading.main_thread():
            for signum in STOP_SIGNALS:
                signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._signum:
            self._signum, self._signalled_at = signum, now
        elif now - self._signalled_at > ONE_SIGNAL_SECONDS:
            raise StoppedBySignal(signum, "Stopped by a second signal, without a new checkpoint.")

    def _stop(self, trainer: Trainer, signum: int) -> None:
        path = Path(trainer.default_root_dir) / LAST
        raise StoppedBySignal(
            signum,
            f"Stopped by {signal.Signals(signum).name} after step {trainer.global_step}; resume "
            f"with: tabicl-linear fit --ckpt_path {path}",
        )
