"""The reference set of normalised scores, read from a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.lengths.datasets import COVERED_ROWS
from tabicl_linear.lengths.parts import read_settings, results
from tabicl_linear.lengths.run import COLUMNS


class Reference(NamedTuple):
    """The readings by which scores are normalised; by default, all of the run itself.

    Attributes:
        models: Names as in the results, such as "deltanet" and "deltanet oracle"; empty for all.
        runs: Folders of other runs over the same datasets, which may hold some of these readings.
    """

    models: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "Reference":
        """Read a YAML file with `models: [...]` and optionally `runs: [...]`, relative to the file.

        Raises:
            ConfigError: The file cannot be read, or has other content.
        """
        try:
            content = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"--reference {path} cannot be read: {error}.") from error
        keys = {"models", "runs"}
        if (
            not isinstance(content, dict)
            or not set(content) <= keys
            or not content.get("models")
            or not all(
                isinstance(value, list) and all(isinstance(name, str) for name in value)
                for value in content.values()
            )
        ):
            raise ConfigError(
                f"--reference {path}: give `models:`, a list of names, and if need be `runs:`, a "
                "list of folders, and nothing else."
            )
        folders = tuple(path.parent / name for name in content.get("runs", []))
        return cls(tuple(content["models"]), folders)

    def check(self, settings: Mapping[str, Any], labels: Sequence[str]) -> None:
        """Check before a run that its results can be normalised.

        Args:
            settings: Settings of the run.
            labels: Names of its readings.

        Raises:
            ConfigError: A folder in `runs` holds no run or one over other datasets; a name of
                `models` is in no run; or two runs use one name for different weights or ways of
                reading.
        """
        available = list(labels)
        origins = {name: ("this run", _origin(name, settings)) for name in labels}
        for folder in self.runs:
            other = read_settings(folder)
            if _decisive(other.get("datasets")) != _decisive(settings["datasets"]):
                raise ConfigError(
                    f"{folder}, which --reference names, is a run over other datasets: seed, rows, "
                    "columns and classes must be those of this run, and the shortest length too if "
                    f"it is below {COVERED_ROWS}."
                )
            read = results(folder, COLUMNS)
            names = [] if read.empty else list(read["model"].unique())
            for name in set(names).intersection(self.models):
                run, origin = origins.setdefault(name, (str(folder), _origin(name, other)))
                if origin != _origin(name, other):
                    raise ConfigError(
                        f"--reference names {name!r}, which is one model in {run} and another, or "
                        f"read with other options, in {folder}: give each a name of its own with "
                        "--names, in a new run."
                    )
            available += names
        missing = [name for name in self.models if name not in available]
        if missing:
            raise ConfigError(
                f"--reference names {missing[0]!r}, which no run has; there are "
                f"{', '.join(dict.fromkeys(available))}."
            )

    def select(self, own: pd.DataFrame) -> pd.DataFrame:
        """The readings of the reference set on the datasets in `own`.

        Raises:
            DataError: A dataset differs between two runs, or a name has no reading on it.
        """
        tables = [own, *(results(folder, COLUMNS) for folder in self.runs)]
        selected = pd.concat([table for table in tables if not table.empty], ignore_index=True)
        selected = selected[selected["dataset"].isin(own["dataset"])]
        sums = selected.groupby("dataset")["checksum"].nunique()
        if (sums > 1).any():
            raise DataError(
                f"dataset {sums.idxmax()} differs between the runs of the reference set: make all "
                "with the same version of PyTorch."
            )
        names = self.models or tuple(own["model"].unique())
        selected = selected[selected["model"].isin(names)].drop_duplicates(
            ["dataset", "model", "num_rows"]
        )
        there = set(zip(selected["dataset"], selected["model"], strict=True))
        for dataset in own["dataset"].unique():
            absent = [name for name in names if (dataset, name) not in there]
            if absent:
                raise DataError(
                    f"the reference set lacks {absent[0]!r} on dataset {dataset}: finish the run "
                    "that has it, or read fewer datasets."
                )
        return selected


def _origin(label: str, settings: Mapping[str, Any]) -> tuple[object, ...]:
    """What the readings with this name depend on: the weights, and how they are read."""
    checkpoints = settings.get("checkpoints", {})
    names = [name for name in checkpoints if label == name or label.startswith(f"{name} ")]
    weights = checkpoints[max(names, key=len)] if names else None
    oracle = settings.get("oracle_options") if label.endswith(" oracle") else None
    return weights, settings.get("statistics"), oracle


def _decisive(datasets: object) -> object:
    """What the datasets depend on; of the lengths to read at, only the shortest matters."""
    if not isinstance(datasets, dict) or not datasets.get("lengths"):
        return datasets
    covered = min(COVERED_ROWS, datasets["lengths"][0])
    return {**datasets, "lengths": None, "covered_rows": covered}
