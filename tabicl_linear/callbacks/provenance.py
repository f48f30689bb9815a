"""Records how a run was made: its config in the run folder, config and origin in checkpoints."""

import os
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from tabicl_linear._version import __version__
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.files import written_whole
from tabicl_linear.git import git_commit
from tabicl_linear.training.metric_names import VALIDATION

CONFIG = "config.yaml"
COMPARED = {
    "Learning rate": "model.optimizer.init_args.lr",
    "Mixer": "model.mixer.class_path",
    "Readout": "model.readout.class_path",
    "Seed": "seed_everything",
    "Strategy": "model.strategy.class_path",
    "Target": "model.strategy.init_args.target",
    "Width": "model.architecture.dim",
}
"""Options by which people compare runs, by name in TensorBoard.

It sorts names, capitals first, and shows only the first five.
"""


class Provenance(Callback):
    """Writes `config.yaml` to the run folder, and config and origin to every checkpoint.

    A checkpoint gets two keys of plain data: `config`, the whole config tree, and `provenance` with
    `package_version`, `git_commit` (None outside a git checkout; `-dirty` marks changed files),
    `prior` (class path and arguments), `seed`, `processes`, `steps`, `datasets` (used in these
    steps), `trained_rows` (fewest and most context rows in training) and `trained_features`
    (fewest and most columns), both None before the first batch. If the weights are an average,
    `averaged_updates` is the number of updates that it covers.

    Args:
        config: The config tree as plain data.
        new: Whether the run folder is new. In an existing folder, TensorBoard has the
            hyper-parameters; logging them again would overwrite the run's scores with NaN.
    """

    def __init__(self, config: dict[str, Any], *, new: bool = True) -> None:
        self.config = config
        self.new = new
        self.text = yaml.safe_dump(config, sort_keys=False)
        self._git_commit = git_commit(Path(__file__).parent)
        self._ranges: dict[str, list[int]] = {}
        self._datasets = 0
        self._in_window = 0
        self._seen_step = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save the config; earlier ones are kept as `config.1.yaml`, `config.2.yaml` ..."""
        if stage == "fit" and trainer.is_global_zero:
            save_config(Path(trainer.default_root_dir), self.text)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the hyper-parameters, with the metrics that make TensorBoard's tab show them."""
        for logger in trainer.loggers:
            if not isinstance(logger, TensorBoardLogger):
                logger.log_hyperparams(hyperparameters(self.config))
            elif self.new:
                unset = dict.fromkeys(VALIDATION, float("nan"))
                logger.log_hyperparams(hyperparameters(self.config), metrics=unset)
                logger.experiment.add_text("config", f"```yaml\n{self.text}\n```")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start counting the datasets of an accumulation window."""
        self._in_window, self._seen_step = 0, trainer.global_step

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: TaskBatch,
        batch_idx: int,
    ) -> None:
        """Widen the trained ranges; count the datasets once their accumulation window ends."""
        self._in_window += len(batch.y) * trainer.world_size
        if trainer.global_step != self._seen_step:
            self._datasets += self._in_window
            self._in_window, self._seen_step = 0, trainer.global_step
        for name, value in (("rows", batch.num_context), ("features", batch.x.shape[2])):
            low, high = self._ranges.get(name, [value, value])
            self._ranges[name] = [min(low, value), max(high, value)]

    def state_dict(self) -> dict[str, Any]:
        """The trained ranges and the number of datasets so far."""
        return {"ranges": self._ranges, "datasets": self._datasets}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the counts of an earlier run."""
        self._ranges = state_dict["ranges"]
        self._datasets = state_dict["datasets"]

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add config and origin."""
        checkpoint["config"] = self.config
        checkpoint["provenance"] = {
            "package_version": __version__,
            "git_commit": self._git_commit,
            "prior": self.config["data"]["prior"],
            "seed": self.config["seed_everything"],
            "processes": trainer.world_size,
            "steps": trainer.global_step,
            "datasets": self._datasets,
            "trained_rows": self._ranges.get("rows"),
            "trained_features": self._ranges.get("features"),
        }
        if "averaging_state" in checkpoint:
            updates = int(checkpoint["averaging_state"]["n_averaged"])
            checkpoint["provenance"]["averaged_updates"] = updates


def save_config(folder: Path, text: str) -> None:
    """Write `config.yaml` atomically; a different one is renamed to the next `config.<n>.yaml`."""
    path = folder / CONFIG
    if path.exists() and path.read_text() != text:
        number = 1
        while (former := folder / f"config.{number}.yaml").exists():
            number += 1
        os.replace(path, former)
    with written_whole(path) as partial:
        partial.write_text(text)


def hyperparameters(config: dict[str, Any]) -> dict[str, bool | int | float | str]:
    """The options that a logger shows: those of `COMPARED`, then the rest of model and data.

    In those of `COMPARED`, class paths are shortened to the class name.
    """
    flat = {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flatten(config).items()
    }
    compared = {
        name: str(flat[key]).rpartition(".")[2] if key.endswith(".class_path") else flat[key]
        for name, key in COMPARED.items()
        if key in flat
    }
    rest = {key: value for key, value in flat.items() if key.startswith(("model.", "data."))}
    return compared | {k: v for k, v in rest.items() if k not in COMPARED.values()}


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as a single one with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
