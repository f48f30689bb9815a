"""The log of legs: hardware, time, training data and scores, one row per leg."""

import csv
import math
import os
import platform
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch

from tabicl_linear import pages
from tabicl_linear.cli.resume import Resume
from tabicl_linear.config import build_data
from tabicl_linear.errors import DataError
from tabicl_linear.files import written_whole

LOG = "legs.csv"


class Leg(NamedTuple):
    """One leg of a pretraining. Scores are NaN for a leg without a decay.

    Attributes:
        hardware: Processor and threads, or GPU.
        minutes: Wall time of training.
        trunk_core_hours: CPU time of the trunk in this leg.
        decay_core_hours: CPU time of the decay.
        steps: Optimiser steps of the trunk since its beginning.
        decay_steps: Optimiser steps of the decay.
        datasets: Synthetic datasets that the weights were trained on, trunk and decay.
        rows: Rows of these datasets.
        loss: Loss on the fixed synthetic validation set, mean over the context lengths.
        roc_auc: ROC-AUC on the same.
        development_roc_auc: Mean over the development tables; NaN if there are none.
        development_accuracy: Accuracy, likewise.
        development_log_loss: Log-loss, likewise.
    """

    hardware: str
    minutes: float
    trunk_core_hours: float
    decay_core_hours: float
    steps: int
    decay_steps: int
    datasets: int
    rows: int
    loss: float = math.nan
    roc_auc: float = math.nan
    development_roc_auc: float = math.nan
    development_accuracy: float = math.nan
    development_log_loss: float = math.nan


COUNTS = ("steps", "decay_steps", "datasets", "rows")
SCORES = Leg._fields[8:]


def read(path: Path) -> pd.DataFrame:
    """All legs of a log, with `core_hours`: the time of the trunk up to that leg and of its decay.

    Raises:
        DataError: The file is not a log of legs.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such log of legs.")
    legs = pd.read_csv(path)
    if tuple(legs.columns) != Leg._fields:
        raise DataError(f"{path} is no log of legs of this version: it has {list(legs.columns)}.")
    return legs.assign(core_hours=legs["trunk_core_hours"].cumsum() + legs["decay_core_hours"])


def append(leg: Leg, output: Path) -> None:
    """Add the leg to `legs.csv` and write all of them as `legs.md`.

    Raises:
        DataError: `legs.csv` has the columns of another version.
    """
    path = output / LOG
    before = path.read_text() if path.exists() else ",".join(Leg._fields) + "\n"
    if path.exists():
        read(path)
    with written_whole(path) as partial, partial.open("w", newline="") as file:
        file.write(before)
        csv.writer(file, lineterminator="\n").writerow(leg)
    with written_whole(output / "legs.md") as partial:
        partial.write_text(markdown(read(path)) + "\n")


def markdown(legs: pd.DataFrame) -> str:
    """The legs as a table; core-hours count trunk and decay of the weights."""
    names = ("hardware", "minutes", "core_hours", *COUNTS, *SCORES)
    rows = [
        [
            str(number),
            row["hardware"],
            f"{row['minutes']:.1f}",
            f"{row['core_hours']:.2f}",
            *(f"{row[name]:,}" for name in COUNTS),
            *("" if math.isnan(row[name]) else f"{row[name]:.4f}" for name in SCORES),
        ]
        for number, (_, row) in enumerate(legs.iterrows(), start=1)
    ]
    return pages.markdown(["leg", *(name.replace("_", " ") for name in names)], rows)


def seen(checkpoint: Path) -> dict[str, int]:
    """Datasets and rows of all training batches that a checkpoint has used."""
    resume = Resume.read(checkpoint)
    config = checkpoint.parent / "config.yaml"
    stream = build_data(config).stream("train", rank=0)
    shapes = [stream.shape(index) for index in range(resume.batches)]
    return {
        "datasets": sum(shape.batch_size for shape in shapes),
        "rows": sum(shape.batch_size * shape.num_rows for shape in shapes),
    }


def describe_hardware(device: str) -> str:
    """The GPU, or the processor with the threads that torch uses."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cores, model = os.cpu_count(), platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
    return f"{model}, {torch.get_num_threads()} of {cores} cores"
