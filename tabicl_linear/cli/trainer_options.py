"""Options that every run adds to Lightning's Trainer, and checks of callbacks before training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BatchSizeFinder,
    EarlyStopping,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.strategies import StrategyRegistry

from tabicl_linear.cli.resume import Resume
from tabicl_linear.config_messages import OBJECTIONS
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.checkpoint_io import WholeFileIO
from tabicl_linear.training.loggers import Board, MetricsFile
from tabicl_linear.training.metric_names import METRICS

OWN = ("tabicl_linear.", "lightning.")

AVERAGES = (
    "it copies the module, which holds parts of a config parser that cannot be copied; use "
    "tabicl_linear.callbacks.weight_averaging.WeightAverage (configs/learner/weight_average.yaml)."
)
ATTRIBUTES = (
    "it works on an attribute of the module (lr, batch_size, backbone) that this one does not "
    "have; options are model.optimizer.init_args.lr and data.shapes.batch_size."
)
REFUSED = {
    BackboneFinetuning: ATTRIBUTES,
    BatchSizeFinder: ATTRIBUTES,
    LearningRateFinder: ATTRIBUTES,
    StochasticWeightAveraging: AVERAGES,
    EMAWeightAveraging: AVERAGES,
    WeightAveraging: AVERAGES,
    GradientAccumulationScheduler: (
        "it sets the accumulation only as an epoch begins, so a run resumed within one would go on "
        "with another; use trainer.accumulate_grad_batches, and to change it on the way, resume a "
        "kept checkpoint with another value."
    ),
}
"""Lightning's callbacks that do not work here, and why; subclasses of them are not refused."""


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """Raise `ConfigError` for callbacks that cannot work, or monitor a metric that nothing logs.

    Callbacks from outside the package may log metrics of their own, so names of metrics are not
    checked if there is one.
    """
    are_own = all(type(callback).__module__.startswith(OWN) for callback in callbacks)
    for callback in callbacks:
        name = type(callback).__name__
        if type(callback) in REFUSED:
            raise ConfigError(f"trainer.callbacks: {name}: {REFUSED[type(callback)]}")
        if are_own and isinstance(callback, EarlyStopping | ModelCheckpoint):
            metric = callback.monitor
            if metric is not None and metric not in METRICS:
                raise ConfigError(
                    f"{name}: monitor={metric}: no such metric; choose from {', '.join(METRICS)}."
                )


def make_trainer(options: Mapping[str, Any]) -> Trainer:
    """Make the trainer; `ConfigError` if Lightning rejects its options."""
    strategy = options["strategy"]
    by_name = isinstance(strategy, str) and strategy in StrategyRegistry.available_strategies()
    if by_name and StrategyRegistry[strategy]["init_params"].get("start_method") == "spawn":
        raise ConfigError(
            f"trainer.strategy={strategy}: it gives other processes the model by pickling it, and "
            "the config parser that it holds cannot be pickled; use trainer.strategy=ddp."
        )
    accelerator = options["accelerator"]
    mps = accelerator == "gpu" and torch.backends.mps.is_available()
    if accelerator in ("gpu", "cuda") and not (torch.cuda.is_available() or mps):
        raise ConfigError(
            f"trainer.accelerator={accelerator}: PyTorch {torch.__version__} finds no GPU here; "
            "ask the scheduler for one, or give --trainer.accelerator cpu."
        )
    try:
        return Trainer(**options)
    except OBJECTIONS as error:
        raise ConfigError(f"trainer: {error}") from error


def with_run_loggers(option: Any, folder: Path, resume: Resume | None) -> Any:
    """The run folder's own loggers and those of `trainer.logger`; False if that option is False."""
    if option is False:
        return False
    step, rows = (0, None) if resume is None else (resume.step, resume.rows)
    others = [logger for logger in as_list(option) if isinstance(logger, Logger)]
    own: list[Logger] = [MetricsFile(folder, resumed_step=step, resumed_rows=rows)]
    if not any(isinstance(logger, TensorBoardLogger) for logger in others):
        own.insert(0, Board(folder, resumed_step=step))
    return [*own, *others]


def with_whole_files(option: Any) -> list[Any]:
    """The plugins of an option, with `WholeFileIO` unless one of them writes checkpoints."""
    plugins = as_list(option)
    if any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        return plugins
    return [*plugins, WholeFileIO()]


def as_list(value: Any) -> list[Any]:
    """The value of an option as a list: it may be one value, several, None or False."""
    if value is None or value is False:
        return []
    return list(value) if isinstance(value, list) else [value]
