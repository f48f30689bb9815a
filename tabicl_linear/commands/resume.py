"""Options given beside `--ckpt_path`: the checkpoint's config, with those options laid over it.

LightningCLI lets a checkpoint's hyper-parameters silently win over the command line. Here what is
given wins, or is refused where a checkpoint cannot follow it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tabicl_linear.callbacks.provenance import flatten
from tabicl_linear.errors import CheckpointError, ConfigError

NETWORK = ("model.architecture", "model.mixer", "model.readout", "model.strategy")
SECTIONS = ("model", "data", "trainer", "seed_everything")
OWN_SCHEDULE = "tabicl_linear.training.schedule.WarmupCosine"


class Resume(NamedTuple):
    """What a checkpoint says about the run that it belongs to.

    Attributes:
        path: The checkpoint.
        config: Its config tree.
        step: Optimiser steps taken.
        batches: Batches used, in the loop's own count.
    """

    path: Path
    config: dict[str, Any]
    step: int
    batches: int

    @classmethod
    def read(cls, path: Path) -> "Resume":
        """Read a checkpoint of this package, or raise `CheckpointError` with the reason."""
        remedy = "give a last.ckpt that `tabicl-linear fit` wrote"
        if not path.is_file():
            raise CheckpointError(f"--ckpt_path {path}: no such file; {remedy}.")
        try:
            stored = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise CheckpointError(
                f"--ckpt_path {path} cannot be read as a checkpoint ({type(error).__name__}: it is "
                f"damaged or of another program); {remedy}."
            ) from error
        keys = {"config", "provenance", "hyper_parameters", "state_dict", "loops", "global_step"}
        missing = sorted(keys - set(stored)) if isinstance(stored, dict) else sorted(keys)
        if missing:
            raise CheckpointError(
                f"--ckpt_path {path} is not a checkpoint of this package (it lacks "
                f"{', '.join(missing)}); {remedy}."
            )
        progress = stored["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
        return cls(path, stored["config"], stored["global_step"], progress["ready"])

    @property
    def base_options(self) -> list[str]:
        """Options that give a parser the stored config before any other file or option."""
        config = {k: v for k, v in self.config.items() if k not in ("config", "ckpt_path")}
        return ["--config", json.dumps(config)]

    def changes(self, config: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Keys whose value differs from the stored one: (key, stored, given)."""
        stored, given = flatten(self.config), flatten(config)
        for key in sorted(stored.keys() | given.keys()):
            if key.split(".")[0] in SECTIONS and stored.get(key) != given.get(key):
                yield key, stored.get(key), given.get(key)

    def check(self, config: dict[str, Any], *, training: bool) -> None:
        """Refuse options that the checkpoint cannot follow.

        Raises:
            ConfigError: The network differs; or, in training, another optimiser class, a schedule
                whose state cannot be moved, or an accumulation that would start inside a window.
        """
        changes = list(self.changes(config))
        for key, stored, given in changes:
            if key.startswith(NETWORK):
                raise ConfigError(
                    f"{key}={given}, but {self.path} holds a network with {key}={stored}; leave "
                    "the option out, or train anew without --ckpt_path."
                )
        if not training:
            return
        if config["trainer"]["max_steps"] < self.step:
            raise ConfigError(
                f"trainer.max_steps={config['trainer']['max_steps']}: {self.path} is at step "
                f"{self.step} already; give more."
            )
        changed = {key for key, _, _ in changes}
        if "model.optimizer.class_path" in changed:
            raise ConfigError(
                f"model.optimizer: {self.path} holds the state of another optimiser class "
                f"({self.config['model']['optimizer']['class_path']}); leave the option out."
            )
        follows = config["model"]["schedule"]["class_path"] == OWN_SCHEDULE
        moved = {key for key in changed if key.startswith(("model.schedule", "model.optimizer"))}
        if "model.schedule.class_path" in moved or (moved and not follows):
            raise ConfigError(
                f"{', '.join(sorted(moved))}: a resumed run can change its learning rate only "
                f"under {OWN_SCHEDULE}, whose state is the step alone; leave the option out."
            )
        accumulate = config["trainer"]["accumulate_grad_batches"]
        if self.batches % accumulate:
            raise ConfigError(
                f"trainer.accumulate_grad_batches={accumulate} would start inside a window: "
                f"{self.path} has used {self.batches} batches; use a number that divides it."
            )


def ckpt_path_option(options: Sequence[str]) -> Path | None:
    """The value of the last `--ckpt_path` on a command line, if there is one."""
    found = None
    for position, option in enumerate(options):
        if option == "--ckpt_path" and position + 1 < len(options):
            found = Path(options[position + 1])
        if option.startswith("--ckpt_path="):
            found = Path(option.removeprefix("--ckpt_path="))
    return found
