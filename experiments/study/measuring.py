"""Measurements of trained units: tidy tables of kilobytes, which stay when the weights are gone."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from experiments.pretrain_default.training import newest_checkpoint
from experiments.study.arms import MINIMAL
from experiments.study.measures import (
    blocks,
    decay_at_evaluation,
    lengths,
    looks,
    oracle,
    oracle_real,
    real,
    states,
    training_curve,
)
from experiments.study.scale import Scale
from experiments.study.store import UNIT, WEIGHTS, Unit, read_unit
from experiments.study.training import RUN
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole
from tabicl_linear.parquet import write_table
from tabicl_linear.priors import GaussianUniformPrior

Measure = Callable[[Path, Scale, str], pd.DataFrame]
"""From a checkpoint, its scale and a device to a tidy table, which is empty where the model has
nothing of the kind."""

MEASURES: Mapping[str, Measure] = {
    "training": training_curve.measure,
    "lengths": lengths.measure,
    "looks": looks.measure,
    "decay_at_evaluation": decay_at_evaluation.measure,
    "blocks": blocks.measure,
    "oracle": oracle.measure,
    "states": states.measure,
}
"""In the order in which they are taken."""
ON_TABLES: Mapping[str, Callable[[Path, Scale, str, Path], pd.DataFrame]] = {
    "real": real.measure,
    "oracle_real": oracle_real.measure,
    real.DEVELOPMENT: real.development,
}
"""Those that read real tables, from a folder that is their last argument."""


def of_arm(name: str, arm: str, tables: Path | None) -> Measure:
    """The measurement of that name of an arm; `tables` is for those that read real tables.

    What holds of Gaussian features and uniform labels is measured on such datasets.
    """
    if name == "lengths" and arm in MINIMAL:
        return partial(lengths.measure, prior=GaussianUniformPrior())
    return MEASURES[name] if name in MEASURES else partial(ON_TABLES[name], tables=tables)


def chosen(asked: Sequence[str] | None, tables: Path | None) -> list[str]:
    """The measures to take: those that are asked for, or all that can be taken.

    Development tables are read only if they are asked for.

    Args:
        asked: Their names; None for all.
        tables: Folder of real tables, if there is one.

    Raises:
        ConfigError: A measure needs tables, and there is no folder, or one without its suites.
        DataError: The folder cannot be read.
    """
    on_folder = [name for name in ON_TABLES if name != real.DEVELOPMENT] if tables else []
    names = [*MEASURES, *on_folder] if asked is None else list(asked)
    needing = [name for name in names if name in ON_TABLES]
    if needing and tables is None:
        raise ConfigError(f"--measure {needing[0]} reads real tables: give their folder, --tables.")
    for name in needing:
        assert tables is not None
        real.check(tables, suites=name != real.DEVELOPMENT)
    return names


class Measuring(NamedTuple):
    """How trained units are measured.

    Attributes:
        scale: Theirs, with the options of measurements.
        store: Where they were trained.
        measured: Where all measurements are kept.
        device: cpu or cuda.
        tables: Folder of real tables, for what reads them.
    """

    scale: Scale
    store: Path
    measured: Path
    device: str
    tables: Path | None

    def take(self, name: str, unit: Unit) -> None:
        """Take a measurement of a unit, one of `MEASURES` or `ON_TABLES`, unless it is there."""
        folder, trained = (
            self.measured / self.scale.name / unit.identity,
            self.store / unit.identity,
        )
        path = folder / f"{name}.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / UNIT).is_file():
            with written_whole(folder / UNIT) as partial_path:
                shutil.copyfile(trained / UNIT, partial_path)
        if path.is_file():
            return
        assert read_unit(trained) is not None, "only concluded units are measured"
        checkpoint = newest_checkpoint(trained / RUN)
        restored = trained / WEIGHTS
        if checkpoint is None and restored.is_file() and name != "training":
            checkpoint = restored
        if checkpoint is None:
            return
        print(f"  {name} of {unit.arm}", flush=True)
        take = of_arm(name, unit.arm, self.tables)
        write_table(path, take(checkpoint, self.scale, self.device))
