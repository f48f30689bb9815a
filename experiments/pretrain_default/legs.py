"""The log of legs: hardware, time, what was seen and what came of it, one row each."""

import csv
import math
import os
import platform
from pathlib import Path
from typing import NamedTuple

import torch

from tabicl_linear.cli.resume import Resume
from tabicl_linear.config import build_data


class Leg(NamedTuple):
    """One leg of a pretraining.

    Attributes:
        hardware: Processor and threads, or GPU.
        minutes: Wall time of training.
        steps: Optimiser steps since the beginning of the run.
        total_steps: Steps over which the learning rate is scheduled.
        datasets: Synthetic datasets since the beginning of the run.
        rows: Their rows.
        loss: On the fixed synthetic validation set, mean over the lengths of the context; NaN where
            a signal ended the leg.
        roc_auc: Likewise.
    """

    hardware: str
    minutes: float
    steps: int
    total_steps: int
    datasets: int
    rows: int
    loss: float = math.nan
    roc_auc: float = math.nan


def append(leg: Leg, output: Path) -> None:
    """Add the leg to `legs.csv` and write all of them as `legs.md`."""
    path = output / "legs.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(Leg._fields)
        writer.writerow(leg)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = ["| leg | " + " | ".join(Leg._fields) + " |", "|---|" + "---|" * len(Leg._fields)]
    for number, row in enumerate(rows, start=1):
        cells = [
            row["hardware"],
            f"{float(row['minutes']):.1f}",
            *(f"{int(row[name]):,}" for name in ("steps", "total_steps", "datasets", "rows")),
            *(f"{float(row[name]):.4f}" for name in ("loss", "roc_auc")),
        ]
        lines.append(f"| {number} | " + " | ".join(cells) + " |")
    (output / "legs.md").write_text("\n".join(lines) + "\n")


def seen(checkpoint: Path) -> dict[str, int]:
    """Datasets and rows of all training batches that a checkpoint has used."""
    resume = Resume.read(checkpoint)
    config = checkpoint.parent / "config.yaml"
    stream = build_data(config).stream("train", rank=0)
    used = [stream.shape(index) for index in range(resume.batches)]
    return {
        "datasets": sum(shape.batch_size for shape in used),
        "rows": sum(shape.batch_size * shape.num_rows for shape in used),
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
