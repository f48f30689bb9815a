"""Trained models of the study: each a unit with an identity, in a folder of one store."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from experiments.study.scale import Scale, Tree
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole

ROOT = Path(__file__).parents[2]
STORE, UNIT, CONFIG = "store.json", "unit.json", "config.yaml"
TRAINED_CODE = ("tabicl_linear", "setup.py")
"""What decides a training besides its config and its seed."""


class Unit(NamedTuple):
    """A model to train: an arm at a scale, with a seed.

    Attributes:
        arm: Its name.
        seed: Of weights and training stream.
        scale: Name of the scale.
        commit: Of the training code.
        config: Its whole config.
    """

    arm: str
    seed: int
    scale: str
    commit: str
    config: Tree

    @property
    def identity(self) -> str:
        """Twelve hexadecimal digits that follow from config, seed and commit."""
        text = json.dumps([self.config, self.seed, self.commit], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def about(self) -> dict[str, Any]:
        """What is kept with every measurement."""
        return {
            "arm": self.arm,
            "seed": self.seed,
            "scale": self.scale,
            "identity": self.identity,
            "commit": self.commit,
        }


def units(scale: Scale, arms: list[str], seeds: list[int], commit: str) -> list[Unit]:
    """Every arm with every seed, all arms with the first seed first."""
    return [
        Unit(arm, seed, scale.name, commit, scale.config_of(arm)) for seed in seeds for arm in arms
    ]


def training_commit() -> str:
    """The last commit that changed the code of training in this checkout.

    Raises:
        ConfigError: This is no checkout, or that code has changes that are not committed.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments, "--", *TRAINED_CODE]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit, changes = git("log", "-1", "--format=%H"), git("status", "--porcelain")
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"{ROOT} is no git checkout: units are named by the commit of the training code; "
            "train from a clone."
        ) from error
    if changes:
        raise ConfigError(
            f"{changes.split()[-1]} has changes that are not committed: commit them, or train from "
            "a clone, since units are named by the commit of the training code."
        )
    return commit


def open_store(folder: Path, scale: str, commit: str) -> None:
    """Begin a store, or go on with one of the same scale and training code.

    Raises:
        ConfigError: It holds units of another scale or commit, or something else.
    """
    about = {"scale": scale, "commit": commit}
    path = folder / STORE
    if path.is_file():
        present = json.loads(path.read_text())
        for key, value in about.items():
            if present[key] != value:
                raise ConfigError(
                    f"--store {folder} holds units of {key} {present[key]} and not {value}: name "
                    "another store, or measure what is in it with --measure-only."
                )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"--store {folder} holds other files: name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, about)


def store_commit(folder: Path) -> str:
    """The commit of the training code of a store.

    Raises:
        ConfigError: There is no store.
    """
    try:
        return str(json.loads((folder / STORE).read_text())["commit"])
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"--store {folder}: no store; train there first.") from error


def read_unit(folder: Path) -> dict[str, Any] | None:
    """The record of a unit's folder; None where it was not concluded."""
    path = folder / UNIT
    return json.loads(path.read_text()) if path.is_file() else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n")
