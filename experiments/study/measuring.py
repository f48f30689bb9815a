"""Measurements of trained units: tidy tables of kilobytes, which stay when the weights are gone."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pandas as pd

from experiments.pretrain_default.training import newest_checkpoint
from experiments.study.measures import (
    cost,
    decay_at_evaluation,
    lengths,
    looks,
    oracle,
    training_curve,
)
from experiments.study.scale import Scale
from experiments.study.store import UNIT, Unit, read_unit
from experiments.study.training import RUN
from tabicl_linear.files import written_whole
from tabicl_linear.parquet import write_table

Measure = Callable[[Path, Scale, str], pd.DataFrame]
"""From a checkpoint, its scale and a device to a tidy table, which is empty where the model has
nothing of the kind."""

MEASURES: Mapping[str, Measure] = {
    "training": training_curve.measure,
    "lengths": lengths.measure,
    "looks": looks.measure,
    "decay_at_evaluation": decay_at_evaluation.measure,
    "oracle": oracle.measure,
    "cost": cost.measure,
}
"""In the order in which they are taken."""


def measure(
    name: str, unit: Unit, scale: Scale, store: Path, measured: Path, device: str
) -> Path | None:
    """Take a measurement of a trained unit, unless it is there; return its file.

    Args:
        name: One of `MEASURES`.
        unit: Whose.
        scale: Its scale, with the options of measurements.
        store: Where it was trained.
        measured: Where all measurements are kept.
        device: cpu or cuda.
    """
    folder = measured / scale.name / unit.identity
    path = folder / f"{name}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / UNIT).is_file():
        with written_whole(folder / UNIT) as partial_path:
            shutil.copyfile(store / unit.identity / UNIT, partial_path)
    if path.is_file():
        return path
    record = read_unit(store / unit.identity)
    assert record is not None, "only concluded units are measured"
    checkpoint = newest_checkpoint(store / unit.identity / RUN)
    if checkpoint is None:
        return None
    print(f"  {name} of {unit.arm}", flush=True)
    take = partial(MEASURES[name], checkpoint, scale, device)
    write_table(path, take())
    return path
