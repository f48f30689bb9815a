"""Where a run stands right after an optimiser step, and what remains to be done before the next.

Checkpoints are taken right after a step, before the validation that may follow it. A run that is
killed during that validation repeats it when it is resumed, so that callbacks that read its scores
(`EarlyStopping`, `ModelCheckpoint`) behave as in an uninterrupted run. A run that early stopping
has ended takes no further step, even if it is killed after its last checkpoint or resumed again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from tabicl_linear.training.loggers import MetricsFile

KEY = "after_step"
"""Key of the `AfterStep` in a checkpoint."""


class StepProgress(NamedTuple):
    """Where a run stands right after an optimiser step.

    Attributes:
        step: Optimiser steps taken.
        loops: State of the training loop.
        data: State of the data module, under the key that Lightning stores it by; empty without
            a data module.
    """

    step: int
    loops: dict[str, Any]
    data: dict[str, Any]

    @classmethod
    def of(cls, trainer: Trainer) -> "StepProgress":
        """Read the progress of a run that has just taken a step."""
        module = trainer.datamodule  # type: ignore[attr-defined]
        data = {} if module is None else {type(module).__qualname__: module.state_dict()}
        return cls(trainer.global_step, trainer.fit_loop.state_dict(), data)


class AfterStep(NamedTuple):
    """What remains to be done after the step of a checkpoint, and what the run has written.

    Attributes:
        validation: Whether the validation that follows the step has not been completed.
        stop: Whether the run ends after that validation, or has been ended by early stopping.
        rows: Rows of `metrics.csv`; None if they are not known.
    """

    validation: bool = False
    stop: bool = False
    rows: int | None = None

    @classmethod
    def read(cls, checkpoint: Mapping[str, Any]) -> "AfterStep":
        """Read it from a checkpoint; those of earlier versions leave nothing to do."""
        return cls(**checkpoint.get(KEY, {}))


def validation_follows(trainer: Trainer) -> bool:
    """Whether Lightning will validate after the batch that has just ended."""
    if not trainer.enable_validation:
        return False
    if trainer.should_stop and trainer.fit_loop._can_stop_early:
        return True
    interval = trainer.val_check_batch
    batches = trainer.fit_loop.total_batch_idx + 1
    return isinstance(interval, int) and batches % interval == 0


def has_stopped_early(trainer: Trainer) -> bool:
    """Whether early stopping has ended the run."""
    reasons = [callback.stopping_reason for callback in trainer.early_stopping_callbacks]
    return any(reason is not EarlyStoppingReason.NOT_STOPPED for reason in reasons)


def early_end(trainer: Trainer) -> str | None:
    """Which callback has ended the run early, and why; None if none has."""
    for callback in trainer.early_stopping_callbacks:
        if callback.stopping_reason is not EarlyStoppingReason.NOT_STOPPED:
            reason = str(callback.stopping_reason_message)
            return (
                f"{type(callback).__name__} ended the run after step {trainer.global_step}: "
                f"{reason.removesuffix(' Signaling Trainer to stop.')}"
            )
    return None


def rows_written(trainer: Trainer) -> int | None:
    """Rows of the run's `metrics.csv`; None in a process that does not write it."""
    files = [logger for logger in trainer.loggers if isinstance(logger, MetricsFile)]
    return files[0].rows if files and trainer.is_global_zero else None


def make_up(trainer: Trainer, left: AfterStep) -> AfterStep:
    """Do what `left` says, as Lightning's loop would have, and return that nothing is left."""
    if left.validation and trainer.enable_validation:
        validation = trainer.fit_loop.epoch_loop.val_loop
        validation.restarting = False
        trainer.validating = True
        validation.run()
        trainer.training = True
    if left.stop and (left.validation or has_stopped_early(trainer)):
        trainer.should_stop = True
        rank_zero_info(
            f"The run has ended early, after step {trainer.global_step}; to go on, give "
            "--trainer.callbacks without EarlyStopping."
        )
    return AfterStep()
