"""The reference set of normalised scores, which a file names."""

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
    """Which readings normalise the others; all of the run itself where nothing is named.

    Attributes:
        models: Names as results have them, such as "deltanet" and "deltanet oracle"; none for all.
        runs: Folders of other runs over the same datasets, where those readings may be.
    """

    models: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "Reference":
        """From a YAML file with `models: [...]` and, if need be, `runs: [...]` beside the file.

        Raises:
            ConfigError: No such file, or another content.
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
            settings: Of the run.
            labels: Names of its readings.

        Raises:
            ConfigError: Another run is over other datasets, or is no run; no run has a name; or
                two runs give a name to other weights, or read them in another way.
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
        """The readings of the reference set, of the datasets that `own` has.

        Raises:
            DataError: A dataset is not the same in two runs, or a name is missing on one.
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
    """What decides the readings of a run that bear this name: weights and how they are read."""
    checkpoints = settings.get("checkpoints", {})
    names = [name for name in checkpoints if label == name or label.startswith(f"{name} ")]
    weights = checkpoints[max(names, key=len)] if names else None
    oracle = settings.get("oracle_options") if label.endswith(" oracle") else None
    return weights, settings.get("statistics"), oracle


def _decisive(datasets: object) -> object:
    """What decides the datasets: of the lengths they are read at only the shortest does."""
    if not isinstance(datasets, dict) or not datasets.get("lengths"):
        return datasets
    covered = min(COVERED_ROWS, datasets["lengths"][0])
    return {**datasets, "lengths": None, "covered_rows": covered}
