"""Resumes runs: the checkpoint's config, overridden by the options given beside `--ckpt_path`.

LightningCLI lets a checkpoint's hyper-parameters silently override the command line. Here the
command line overrides the checkpoint, and an option that the checkpoint rules out is an error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import WeightAveraging

from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Cells
from tabicl_linear.callbacks.provenance import flatten
from tabicl_linear.checkpoint_file import load_checkpoint
from tabicl_linear.cli.trusted import check_config, check_states
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.former_options import current_config
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.training.after_step import AfterStep
from tabicl_linear.training.schedule import StepSchedule

NETWORK = ("model.architecture", "model.mixer", "model.readout", "model.strategy")
MAY_CHANGE = tuple(f"model.architecture.ridge_inputs.{name}" for name in ("dropout", "calibration"))
"""Options of the network that a resumed run may change.

No parameter depends on them, and further training adapts to them.
"""
SECTIONS = ("model", "data", "trainer", "seed_everything")
GIVEN_ANEW = ("config", "ckpt_path", "weights_only", "trust_code")
"""Options that a run never inherits from a checkpoint."""
WHOLE = (
    *("config", "provenance", "hyper_parameters", "state_dict", "loops", "global_step"),
    *("optimizer_states", "lr_schedulers", "callbacks", "PriorDataModule"),
)
"""Parts of a checkpoint without which a run cannot be resumed."""
LIMITS = ("data.shapes.max_features", "data.shapes.max_classes")
"""Limits of the tasks that also set sizes of the network, through `config.LINKS`."""
REMEDY = "give a last.ckpt that `tabicl-linear fit` wrote"


class Resume(NamedTuple):
    """What a checkpoint says about its run.

    Attributes:
        path: The checkpoint.
        config: The whole config of the run, with options of former versions renamed.
        step: Optimiser steps taken.
        batches: Batches used, as counted by the training loop.
        averaged: Whether it holds averaged weights in addition to the trained ones. Training
            resumes from the trained ones.
        rows: Rows of the run's `metrics.csv` at the checkpoint; None if not recorded.
    """

    path: Path
    config: dict[str, Any]
    step: int
    batches: int
    averaged: bool
    rows: int | None = None

    @classmethod
    def read(cls, path: Path) -> "Resume":
        """Read a checkpoint of this package, or raise `CheckpointError` with the reason."""
        if not path.is_file():
            what = "it is a folder" if path.is_dir() else "no such file"
            raise CheckpointError(f"--ckpt_path {path}: {what}; {REMEDY}.")
        if path.suffix == ".safetensors":
            raise CheckpointError(
                f"--ckpt_path {path}: an export holds the weights alone; {REMEDY}, or start a new "
                "run from the export (docs/training.md, Starting from other weights)."
            )
        try:
            stored = load_checkpoint(path, REMEDY)
        except CheckpointError as error:
            raise CheckpointError(f"--ckpt_path {error}") from error
        missing = sorted(key for key in WHOLE if not stored.get(key))
        if missing:
            raise CheckpointError(
                f"--ckpt_path {path} is not a checkpoint of this package, or an incomplete one (it "
                f"lacks {', '.join(missing)}); {REMEDY}."
            )
        try:
            check_states(stored["callbacks"])
        except CheckpointError as error:
            raise CheckpointError(f"--ckpt_path {path}: {error}") from error
        try:
            progress = stored["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
            _require_progress(stored)
            return cls(
                path,
                current_config(stored["config"]),
                int(stored["global_step"]),
                progress["ready"],
                "current_model_state" in stored,
                AfterStep.read(stored).rows,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"--ckpt_path {path} does not hold the progress of its run ({error} missing or "
                f"invalid); {REMEDY}."
            ) from error

    @property
    def inherited(self) -> dict[str, Any]:
        """The stored config without the options in `GIVEN_ANEW`."""
        return {k: v for k, v in self.config.items() if k not in GIVEN_ANEW}

    def changes(self, config: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield (key, stored value, new value) for each option whose value differs.

        Options of the network that the checkpoint's version did not have count as stored with
        their defaults.
        """
        stored, given = flatten(self.config), flatten(config)
        later = given.keys() - stored.keys()
        stored |= {key: value for key, value in _network_defaults().items() if key in later}
        for key in sorted(stored.keys() | given.keys()):
            if key.split(".")[0] in SECTIONS and stored.get(key) != given.get(key):
                yield key, stored.get(key), given.get(key)

    def check_trust(self, *, trust_code: bool) -> None:
        """Raise `ConfigError` if the config names code that is not trusted (`cli.trusted`).

        With `trust_code` all code is. Nothing that the config names is imported before the check.
        `load_model` follows the same rule.
        """
        if not trust_code:
            try:
                check_config(self.inherited)
            except ConfigError as error:
                raise ConfigError(f"--ckpt_path {self.path}: {error}") from error

    def check(self, config: dict[str, Any], *, training: bool) -> None:
        """Check that the options of a run fit the checkpoint.

        Raises:
            ConfigError: The network differs; or, in training, the run is already beyond
                `trainer.max_steps`, the optimiser class differs, the schedule has state that does
                not fit new options, or training would start inside an accumulation window.
        """
        changes = list(self.changes(config))
        self._check_network(changes)
        if training:
            self._check_training(config, {key for key, _, _ in changes})

    def _check_network(self, changes: Sequence[tuple[str, Any, Any]]) -> None:
        for key, stored, given in changes:
            is_linked = key in LIMITS and self._sizes_the_network(key)
            if is_linked or (key.startswith(NETWORK) and key not in MAY_CHANGE):
                raise ConfigError(
                    f"{key}={given}, but {self.path} holds a network with {key}={stored}; leave "
                    "the option out, or train from scratch without --ckpt_path."
                )

    def _check_training(self, config: dict[str, Any], changes: set[str]) -> None:
        trainer = config["trainer"]
        if trainer["max_steps"] < self.step:
            raise ConfigError(
                f"trainer.max_steps={trainer['max_steps']}: {self.path} is at step {self.step} "
                "already; give more."
            )
        if "model.optimizer.class_path" in changes:
            raise ConfigError(
                f"model.optimizer: {self.path} holds the state of another optimiser class "
                f"({self.config['model']['optimizer']['class_path']}); leave the option out."
            )
        schedules = {tree["model"]["schedule"]["class_path"] for tree in (self.config, config)}
        moves = {key for key in changes if key.startswith(("model.schedule", "model.optimizer"))}
        if moves and not all(map(_has_only_the_step, schedules)):
            raise ConfigError(
                f"{', '.join(sorted(moves))}: a resumed run can change its learning rate only "
                "with schedules of tabicl_linear.training.schedule, such as WarmupCosine, or "
                "subclasses of its StepSchedule, whose only state is the step; leave the option "
                "out."
            )
        window = trainer["accumulate_grad_batches"]
        # Batches are counted from zero in each epoch, and an epoch's last batch ends its window.
        if "trainer.accumulate_grad_batches" in changes and self.batches % window:
            raise ConfigError(
                f"trainer.accumulate_grad_batches={window} would start inside a window: "
                f"{self.path} has used {self.batches} batches; use a number that divides it."
            )

    def _sizes_the_network(self, limit: str) -> bool:
        """Whether weights, or the random draws of ridge inputs, depend on a limit of the tasks.

        With cell embeddings alone they do not depend on the number of columns: a cell always
        holds the same few.
        """
        architecture = self.config["model"]["architecture"]
        by_cells = architecture.get("cells") is not None and not architecture.get("ridge_inputs")
        return limit != "data.shapes.max_features" or not by_cells

    def check_averaging(self, callbacks: Sequence[Callback]) -> None:
        """Raise `ConfigError` if averaged weights are stored and no callback restores the trained.

        Training would otherwise continue from the averaged weights, with the optimiser state of
        the trained ones.
        """
        if self.averaged and not any(isinstance(c, WeightAveraging) for c in callbacks):
            raise ConfigError(
                f"trainer.callbacks: {self.path} holds averaged weights, and separately the "
                "trained ones, which only the callback that averages can restore; leave it in."
            )


def _require_progress(stored: dict[str, Any]) -> None:
    """Raise `KeyError` or `TypeError` if a part of training would silently start from scratch.

    The look-ups are the check: their values are not used.
    """
    stored["PriorDataModule"]["next_index"], stored["callbacks"]["Provenance"]["datasets"]
    for optimizer in stored["optimizer_states"]:
        optimizer["state"], optimizer["param_groups"]
    for schedule in stored["lr_schedulers"]:
        schedule["last_epoch"]


def _has_only_the_step(schedule: str) -> bool:
    """Whether the step is the only state of a schedule, named by its class path."""
    module, _, name = schedule.rpartition(".")
    return issubclass(getattr(import_module(module), name), StepSchedule)


def option_value(options: Sequence[str], name: str) -> str | None:
    """The last value of `--name` on a command line; None if it does not occur."""
    value = None
    for position, option in enumerate(options):
        if option == f"--{name}" and position + 1 < len(options):
            value = options[position + 1]
        if option.startswith(f"--{name}="):
            value = option.partition("=")[2]
    return value


def _network_defaults() -> dict[str, Any]:
    """The default of every option of the network, by dotted key."""
    every = Architecture(), Architecture(cells=Cells(), ridge_inputs=RidgeOptions())
    without, groups = (flatten({"model": {"architecture": asdict(each)}}) for each in every)
    return without | groups
