"""Shared parts of the callbacks that look at a model while it trains."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from tabicl_linear.analysis.cards import pixels
from tabicl_linear.analysis.probe_tasks import NUM_CLASSES, Probe, default_lengths, draw_probe
from tabicl_linear.data.datamodule import PriorDataModule
from tabicl_linear.errors import ConfigError
from tabicl_linear.model import InContextModel
from tabicl_linear.parquet import write_table
from tabicl_linear.training.task import InContextTask

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "metrics"
"""Subfolder of the run folder, with a folder of Parquet files for each of these callbacks."""

GROUP = "within"
"""First part of all tags in TensorBoard, which unfolds the first two groups in alphabetical order.

By this name they are still `train` and `val`.
"""


class Probing(Callback, ABC):
    """Looks at the model on fixed tasks at intervals of optimiser steps, without changing training.

    The tasks are drawn from the run's own prior, with a seed that is the same for all runs. Only
    the first process looks, at the trained weights (not at an average of them), in the precision of
    the run. Callbacks that look at the same tasks in the same step share the states of `probe.fit`.
    The results go to TensorBoard, as scalars and pictures, and to
    `metrics/<name>/step_<n>.parquet` in the run folder. Each look writes one complete file, so that
    `pandas.read_parquet("metrics/<name>")` reads all of them, even after a kill. Nothing is written
    for a model that lacks what a callback measures.

    Args:
        every_n_steps: Optimiser steps between looks at the model; 0 for no looks.
        num_tasks: Probe tasks.

    Attributes:
        name: Name of the callback's folder, and of its section in TensorBoard's layout.
        charts: Charts of that section, each with patterns of its tags, by title; may be empty.
        probe: The tasks; None if this callback does not look. Callbacks with equal tasks hold the
            same object, and so share the states that it stores during a look.
    """

    name: ClassVar[str] = ""
    charts: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self, every_n_steps: int, num_tasks: int) -> None:
        if not self.name:
            raise ConfigError(
                f"{type(self).__name__} has no name: give the class one, as in name = 'entropy', "
                "after which its folder and its section in TensorBoard are called."
            )
        if every_n_steps < 0 or num_tasks < 1:
            raise ConfigError(
                f"{type(self).__name__}: every_n_steps={every_n_steps}, num_tasks={num_tasks}: "
                "give 0 or more steps (0 for none) and at least 1 task."
            )
        self.every_n_steps = every_n_steps
        self.num_tasks = num_tasks
        self.probe: Probe | None = None
        self._seen_step = 0

    @abstractmethod
    def lengths(self, trained: int) -> list[int]:
        """Context lengths to look at, if the longest table of training has `trained` rows."""

    @abstractmethod
    def look(self, model: InContextModel, probe: Probe) -> pd.DataFrame | None:
        """Measure the model, without gradients; None if it lacks what is measured."""

    @abstractmethod
    def scalars(self, table: pd.DataFrame) -> dict[str, float]:
        """Numbers for TensorBoard, by tag below `within/`, such as `state/spectral/layer_03`."""

    @abstractmethod
    def pictures(self, table: pd.DataFrame, probe: Probe) -> "dict[str, Figure]":
        """Pictures for TensorBoard (`analysis.cards`), by tag below `within/`."""

    def draw(self, data: PriorDataModule) -> Probe:
        """The probe tasks of a run with these data; the same at every call."""
        shapes = data.shapes
        trained = shapes.row_range[1]
        return draw_probe(
            data.prior,
            self.lengths(trained),
            trained=trained,
            num_tasks=self.num_tasks,
            feature_range=(shapes.min_features, shapes.max_features),
            max_classes=shapes.max_classes,
        )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Draw the probe tasks, or share those of an earlier callback if they are equal.

        Raises:
            ConfigError: The run has no prior to draw them from, or another callback that looks has
                the same name.
        """
        self.probe = None
        is_trial = trainer.fast_dev_run  # type: ignore[attr-defined]
        if stage != "fit" or not self.every_n_steps or is_trial or not trainer.is_global_zero:
            return
        data = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, PriorDataModule):
            raise ConfigError(
                f"{type(self).__name__} draws its tasks from the prior of a PriorDataModule: "
                "train from one (a Prior of your own fits in it), or set every_n_steps to 0."
            )
        own = self.draw(data)._replace(states={})
        callbacks = _probing(trainer)
        earlier = [other for other in callbacks[: callbacks.index(self)] if other.probe is not None]
        for other in earlier:
            if other.name == self.name:
                raise ConfigError(
                    f"{type(self).__name__} and {type(other).__name__} have the name "
                    f"{self.name!r}, and files of one would replace those of the other: give a "
                    "class another name, or one of them every_n_steps: 0."
                )
        probes = (other.probe for other in earlier)
        equal = (probe for probe in probes if probe is not None and probe.has_tasks_of(own))
        self.probe = next(equal, own)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delete files that an interrupted run wrote at later steps, and lay out TensorBoard."""
        self._seen_step = trainer.global_step
        if self.probe is None:
            return
        for path in self._folder(trainer).glob("step_*.parquet"):
            if int(path.stem.removeprefix("step_")) > trainer.global_step:
                path.unlink()
        looking = [callback for callback in _probing(trainer) if callback.probe is not None]
        # A writer takes only one layout, so the first callback writes that of all.
        if looking[0] is self:
            layout = {
                callback.name.replace("_", " ").capitalize(): {
                    title: ["Multiline", [f"{GROUP}/{tag}" for tag in tags]]
                    for title, tags in callback.charts.items()
                }
                for callback in looking
            }
            for writer in _writers(trainer):
                writer.add_custom_scalars(layout)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Look at the model if this batch ended a step at which a look is due."""
        step = trainer.global_step
        ends_step, self._seen_step = step != self._seen_step, step
        if self.probe is None or not ends_step or step % self.every_n_steps:
            return
        states = self.probe.states
        assert states is not None, "made in setup"
        assert isinstance(pl_module, InContextTask)
        sharing = [
            callback
            for callback in _probing(trainer)
            if callback.probe is self.probe and step % callback.every_n_steps == 0
        ]
        if sharing[0] is self:  # an earlier look may have failed and left its states
            states.clear()
        probe = self.probe.to(pl_module.device)
        devices = [pl_module.device] if pl_module.device.type == "cuda" else []
        # A user's own mixer may draw random numbers, which must not change those of training.
        with (
            torch.random.fork_rng(devices),
            torch.no_grad(),
            trainer.precision_plugin.val_step_context(),
        ):
            table = self.look(pl_module.model, probe)
        if sharing[-1] is self:
            states.clear()
        if table is not None:
            self._keep(trainer, step, table, probe)

    def _keep(self, trainer: Trainer, step: int, table: pd.DataFrame, probe: Probe) -> None:
        folder = self._folder(trainer)
        folder.mkdir(parents=True, exist_ok=True)
        write_table(folder / f"step_{step:07d}.parquet", table.assign(step=step))
        writers = _writers(trainer)
        if not writers:
            return
        scalars = self.scalars(table)
        images = {tag: pixels(figure) for tag, figure in self.pictures(table, probe).items()}
        # Lightning logs this step's metrics under this number, too. A run resumed from this step
        # hides everything from `step` on.
        logged = step - 1
        for writer in writers:
            for tag, value in scalars.items():
                writer.add_scalar(f"{GROUP}/{tag}", value, logged)
            for tag, image in images.items():
                writer.add_image(f"{GROUP}/{tag}", image, logged, dataformats="HWC")

    def _folder(self, trainer: Trainer) -> Path:
        return Path(trainer.default_root_dir) / FOLDER / self.name


class OneLength(Probing):
    """Looks at the model after a context of one length.

    Args:
        every_n_steps: Optimiser steps between looks at the model; 0 for no looks.
        num_tasks: Probe tasks.
        length: Rows of context; if None, as many as the longest table of training has.
    """

    def __init__(
        self, every_n_steps: int = 1000, num_tasks: int = 8, length: int | None = None
    ) -> None:
        super().__init__(every_n_steps, num_tasks)
        checked_lengths(None if length is None else [length], type(self).__name__)
        self.length = length

    def lengths(self, trained: int) -> list[int]:
        """The option `length`, or else the longest table of training, as the only item."""
        return [self.length or trained]


class SeveralLengths(Probing):
    """Looks at the model after contexts of several lengths.

    Args:
        every_n_steps: Optimiser steps between looks at the model; 0 for no looks.
        num_tasks: Probe tasks.
        lengths: Context lengths in rows; if None, from an eighth to four times the longest table
            of training.
    """

    def __init__(
        self, every_n_steps: int = 1000, num_tasks: int = 8, lengths: list[int] | None = None
    ) -> None:
        super().__init__(every_n_steps, num_tasks)
        self._given = checked_lengths(lengths, type(self).__name__)

    def lengths(self, trained: int) -> list[int]:
        """The option `lengths`, or else the default lengths."""
        return self._given or default_lengths(trained)


def checked_lengths(lengths: Sequence[int] | None, callback: str) -> list[int] | None:
    """Return the lengths as a list, after checking them; None stays None.

    Raises:
        ConfigError: Lengths are not in increasing order, or too short to hold every class of a
            probe task.
    """
    if lengths is None:
        return None
    lengths = list(lengths)
    if not lengths or sorted(set(lengths)) != lengths or lengths[0] < NUM_CLASSES:
        raise ConfigError(
            f"{callback}: lengths={lengths}: give context lengths in increasing order, of at least "
            f"{NUM_CLASSES} rows, so that a context can show the {NUM_CLASSES} classes of a probe "
            "task."
        )
    return lengths


def _probing(trainer: Trainer) -> list[Probing]:
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, Probing)]


def _writers(trainer: Trainer) -> list[Any]:
    loggers = [x for x in trainer.loggers if isinstance(x, TensorBoardLogger)]
    return [logger.experiment for logger in loggers]
