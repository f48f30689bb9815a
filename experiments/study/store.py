"""The store of trained models: each is a unit with an identity, in a folder of its own."""

import errno
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from experiments.study.scale import Scale, Tree
from experiments.study.training_code import TrainingCode
from tabicl_linear.errors import ConfigError, DamagedFile
from tabicl_linear.files import is_partial_of, written_whole

STORE, UNIT, CONFIG = "store.json", "unit.json", "config.yaml"
WEIGHTS = "weights.safetensors"
"""Weights of a unit that was restored from its export."""
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC)
"""Errors that mean that a folder cannot be written, rather than a fault of this program."""


class Unit(NamedTuple):
    """A model to train: an arm at a scale, with a seed.

    Attributes:
        arm: Name of the arm.
        seed: Seed of weights and training stream.
        scale: Name of the scale.
        code: Digest of the code that trains it.
        commit: Commit of this code; not part of the identity.
        config: Its whole config.
    """

    arm: str
    seed: int
    scale: str
    code: str
    commit: str
    config: Tree

    @property
    def identity(self) -> str:
        """Digest of config, seed and code, in twelve hexadecimal digits."""
        return _digest([self.config, self.seed, self.code])

    @property
    def recipe(self) -> str:
        """Digest of the config alone, in twelve hexadecimal digits."""
        return _digest(self.config)

    @property
    def about(self) -> dict[str, Any]:
        """The description that is kept with every measurement."""
        return {
            "arm": self.arm,
            "seed": self.seed,
            "scale": self.scale,
            "identity": self.identity,
            "recipe": self.recipe,
            "code": self.code,
            "commit": self.commit,
        }

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed} ({self.identity})"


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def units(scale: Scale, arms: list[str], seeds: list[int], code: TrainingCode) -> list[Unit]:
    """Return every arm with every seed: first all arms with the first seed."""
    configs = {arm: scale.config_of(arm) for arm in arms}
    return [
        Unit(arm, seed, scale.name, code.digest(configs[arm]), code.commit, configs[arm])
        for seed in seeds
        for arm in arms
    ]


def open_store(folder: Path, scale: str, code: TrainingCode) -> None:
    """Create a store, or continue one of the same scale and training code.

    Other processes of an array of jobs may create the same store at the same time, and one that was
    killed may have left its file half written.

    Raises:
        ConfigError: The folder holds units of another scale or code, or other files.
    """
    about = {"scale": scale, "code": code.shared}
    path = folder / STORE
    if path.is_file():
        present = _read_store(folder)
        for key, value in about.items():
            if present.get(key) != value:
                raise ConfigError(
                    f"--store {folder} holds units of {key} {present.get(key, 'unknown')} and not "
                    f"{value}: name another store, or measure what is in it with --measure-only."
                )
        return
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    if STORE in names:  # created by another process in the meantime
        return open_store(folder, scale, code)
    if not all(is_partial_of(path, name) for name in names):
        raise ConfigError(f"--store {folder} holds other files: name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, about)


def stored(folder: Path, scale: str, arms: list[str], seeds: list[int]) -> list[Unit]:
    """Return the units of some arms and seeds that a store holds, in the order of `units`.

    They have the identity with which they were trained, whatever the code is now.

    Raises:
        ConfigError: There is no store, it is of another scale, or it holds no such unit.
        DamagedFile: The record of a unit cannot be read.
    """
    present = _read_store(folder)
    if present["scale"] != scale:
        raise ConfigError(
            f"--store {folder} holds units of scale {present['scale']} and not {scale}: name "
            "another store."
        )
    everything = []
    for path in folder.glob(f"*/{UNIT}"):
        about = _record(path)
        config = yaml.safe_load((path.parent / CONFIG).read_text())
        # Records of the first units have no digest of the code; there, the commit stands for it.
        code = about.get("code", about["commit"])
        everything.append(Unit(about["arm"], about["seed"], scale, code, about["commit"], config))
    matches = [unit for unit in everything if unit.arm in arms and unit.seed in seeds]
    if not matches:
        raise ConfigError(
            f"--store {folder} holds no trained unit of {', '.join(arms)} with seed "
            f"{', '.join(map(str, seeds))} (and {len(everything)} others): train there first."
        )
    return sorted(matches, key=lambda unit: (seeds.index(unit.seed), arms.index(unit.arm)))


def _read_store(folder: Path) -> dict[str, Any]:
    try:
        present = json.loads((folder / STORE).read_text())
        return {"scale": str(present["scale"]), **present}
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"--store {folder}: no store; train there first.") from error


def read_unit(folder: Path) -> dict[str, Any] | None:
    """Return the record of a unit's folder; None if its training has neither ended nor failed.

    Raises:
        DamagedFile: The record cannot be read.
    """
    path = folder / UNIT
    return _record(path) if path.is_file() else None


def _record(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        remedy = "delete it and repeat the command that trains, which finds its checkpoint"
        raise DamagedFile(path, str(error), remedy) from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data as JSON, atomically."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n")
