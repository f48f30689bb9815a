"""What the callbacks that look at a model while it trains have in common."""

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
"""In the run folder; holds a folder of Parquet files for each of these callbacks."""

GROUP = "within"
"""Of all tags in TensorBoard. It unfolds the first two groups by name: `train` and `val`."""


class Probing(Callback, ABC):
    """Looks at the model on fixed tasks every so many optimiser steps, and changes nothing.

    The tasks are drawn from the run's own prior with a seed that is the same for all runs. The
    first process alone looks, at the weights that are trained (not at an average of them), in the
    precision of the run. Callbacks that look at the same tasks in the same step share the states of
    `probe.fit`. What one sees goes to TensorBoard, as scalars and pictures, and to
    `metrics/<name>/step_<n>.parquet` in the run folder: one whole file for each look, so that
    `pandas.read_parquet("metrics/<name>")` reads them all, after a kill, too. A model that does not
    have what is looked for leaves nothing.

    Args:
        every_n_steps: Optimiser steps between looks; 0 for none.
        num_tasks: Probe tasks.

    Attributes:
        name: Of the folder, and of the section of the layout in TensorBoard.
        charts: Charts of that section: title to patterns of tags; none if left out.
        probe: The tasks; None while it does not look. Callbacks with equal tasks have the same
            value, and so share the states that it holds while they look.
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
        """Context lengths that are looked at, for a run whose longest table has so many rows."""

    @abstractmethod
    def look(self, model: InContextModel, probe: Probe) -> pd.DataFrame | None:
        """What is kept of the model; None where it does not have it. Gradients are off."""

    @abstractmethod
    def scalars(self, table: pd.DataFrame) -> dict[str, float]:
        """Numbers for TensorBoard, by tag below `within/`: what, then of which layer or length."""

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
        """Draw the probe tasks, or take over those of a callback before this one if they are equal.

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
        """Drop what an interrupted run left of later steps, and lay out TensorBoard."""
        self._seen_step = trainer.global_step
        if self.probe is None:
            return
        for path in self._folder(trainer).glob("step_*.parquet"):
            if int(path.stem.removeprefix("step_")) > trainer.global_step:
                path.unlink()
        looking = [callback for callback in _probing(trainer) if callback.probe is not None]
        # A writer takes one layout only: the first of them writes that of all.
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
        """Look, if this batch ended a step at which it is due."""
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
        if sharing[0] is self:  # a look that failed may have left some
            states.clear()
        probe = self.probe.to(pl_module.device)
        devices = [pl_module.device] if pl_module.device.type == "cuda" else []
        # A mixer of a user's own may draw random numbers.
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
        # As Lightning numbers what it logs of this step: a resumed run hides all from `step` on.
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
        every_n_steps: Optimiser steps between looks; 0 for none.
        num_tasks: Probe tasks.
        length: Rows of context; those of the longest table of training if None.
    """

    def __init__(
        self, every_n_steps: int = 1000, num_tasks: int = 8, length: int | None = None
    ) -> None:
        super().__init__(every_n_steps, num_tasks)
        checked_lengths(None if length is None else [length], type(self).__name__)
        self.length = length

    def lengths(self, trained: int) -> list[int]:
        """The one length."""
        return [self.length or trained]


class SeveralLengths(Probing):
    """Looks at the model after contexts of several lengths.

    Args:
        every_n_steps: Optimiser steps between looks; 0 for none.
        num_tasks: Probe tasks.
        lengths: Context lengths in rows; an eighth to four times the longest table of training if
            None.
    """

    def __init__(
        self, every_n_steps: int = 1000, num_tasks: int = 8, lengths: list[int] | None = None
    ) -> None:
        super().__init__(every_n_steps, num_tasks)
        self._given = checked_lengths(lengths, type(self).__name__)

    def lengths(self, trained: int) -> list[int]:
        """All lengths."""
        return self._given or default_lengths(trained)


def checked_lengths(lengths: Sequence[int] | None, callback: str) -> list[int] | None:
    """Lengths in increasing order, as given.

    Raises:
        ConfigError: Lengths out of order, or too short to show every class of a probe task.
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
