"""Measurements of trained units: tidy tables of kilobytes, which are kept without the weights."""

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
"""Measures a checkpoint, given its scale and a device; returns a tidy table, which is empty if the
model lacks what is measured."""

MEASURES: Mapping[str, Measure] = {
    "training": training_curve.measure,
    "lengths": lengths.measure,
    "looks": looks.measure,
    "decay_at_evaluation": decay_at_evaluation.measure,
    "blocks": blocks.measure,
    "oracle": oracle.measure,
    "states": states.measure,
}
"""Measurements on synthetic tables, in the order in which they are taken."""
ON_TABLES: Mapping[str, Callable[[Path, Scale, str, Path], pd.DataFrame]] = {
    "real": real.measure,
    "oracle_real": oracle_real.measure,
    real.DEVELOPMENT: real.development,
}
"""Measurements on real tables; the last argument is the folder of the tables."""


def of_arm(name: str, arm: str, tables: Path | None) -> Measure:
    """Return the measurement `name` for an arm; `tables` is for those that read real tables.

    Arms of the minimal example are measured on Gaussian features with uniform labels.
    """
    if name == "lengths" and arm in MINIMAL:
        return partial(lengths.measure, prior=GaussianUniformPrior())
    return MEASURES[name] if name in MEASURES else partial(ON_TABLES[name], tables=tables)


def chosen(asked: Sequence[str] | None, tables: Path | None) -> list[str]:
    """Return the measurements to take: those asked for, or all that are possible.

    The measurement on development tables is taken only if it is asked for.

    Args:
        asked: Their names; None for all.
        tables: Folder of real tables, if there is one.

    Raises:
        ConfigError: A measurement needs tables, and there is no folder or it lacks the suites.
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
        scale: Scale of the units, with the options of measurements.
        store: Folder of the trained units.
        measured: Folder in which all measurements are kept.
        device: cpu or cuda.
        tables: Folder of real tables, for measurements on them.
    """

    scale: Scale
    store: Path
    measured: Path
    device: str
    tables: Path | None

    def take(self, name: str, unit: Unit) -> None:
        """Take a measurement of a unit (see `MEASURES`, `ON_TABLES`) unless its file exists."""
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
