"""What every run adds to the trainer, and what of it is refused before training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins.io import CheckpointIO

from tabicl_linear.config_messages import OBJECTIONS
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.checkpoint_io import WholeFileIO
from tabicl_linear.training.loggers import Board, MetricsFile
from tabicl_linear.training.metric_names import METRICS

OWN = ("tabicl_linear.", "lightning.")


def check_monitors(callbacks: Sequence[Callback]) -> None:
    """Refuse callbacks that wait for a metric which nothing logs.

    Callbacks from outside may log metrics of their own; with one of those no name is refused.

    Raises:
        ConfigError: With the name and those that there are.
    """
    if not all(type(callback).__module__.startswith(OWN) for callback in callbacks):
        return
    for callback in callbacks:
        if isinstance(callback, EarlyStopping | ModelCheckpoint):
            name = callback.monitor
            if name is not None and name not in METRICS:
                raise ConfigError(
                    f"{type(callback).__name__}: monitor={name}: no such metric; choose from "
                    f"{', '.join(METRICS)}."
                )


def make_trainer(options: Mapping[str, Any]) -> Trainer:
    """The trainer; whatever it objects to is a `ConfigError`."""
    try:
        return Trainer(**options)
    except OBJECTIONS as error:
        raise ConfigError(f"trainer: {error}") from error


def with_run_loggers(given: Any, folder: Path, step: int) -> Any:
    """The run folder's own loggers and those that were given; none if that is False.

    Args:
        given: The option `trainer.logger`.
        folder: The run folder.
        step: The optimiser step that the run starts from.
    """
    if given is False:
        return False
    others = [logger for logger in as_list(given) if isinstance(logger, Logger)]
    own: list[Logger] = [MetricsFile(folder, resumed_step=step)]
    if not any(isinstance(logger, TensorBoardLogger) for logger in others):
        own.insert(0, Board(folder, resumed_step=step))
    return [*own, *others]


def with_whole_files(given: Any) -> list[Any]:
    """The plugins that were given, and the one that writes checkpoints, unless there is another."""
    plugins = as_list(given)
    if any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        return plugins
    return [*plugins, WholeFileIO()]


def as_list(value: Any) -> list[Any]:
    """An option that may be one thing, several or none."""
    if value is None or value is False:
        return []
    return list(value) if isinstance(value, list) else [value]
