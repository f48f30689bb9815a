"""Compares the time of reading a context at every length with that of the longest alone."""

import resource
import statistics
import sys
import time
from functools import partial

import pandas as pd
import torch

from tabicl_linear import pages
from tabicl_linear.lengths.datasets import LengthDataset, draw_dataset
from tabicl_linear.lengths.readings import Statistics, read_prefixes
from tabicl_linear.lengths.run import Models, RunOptions
from tabicl_linear.model import InContextModel


@torch.no_grad()
def measure(models: Models, options: RunOptions, rounds: int) -> pd.DataFrame:
    """Seconds on dataset 0, as medians over rounds in which the two alternate.

    On a CPU they are CPU time of all threads, which other work on the machine affects least;
    elsewhere they are wall-clock time.

    Returns:
        A row for each model: model, parameters, num_rows, lengths, draw_seconds (drawing the
        dataset), every_seconds (reading at all lengths), longest_seconds (at the longest alone),
        ratio (the median of the two's ratios), and peak_mb, the peak memory of the process so far.
    """
    start = time.process_time()
    on_cpu = draw_dataset(options.datasets, 0)
    draw_seconds = time.process_time() - start
    lengths, rows = options.datasets.lengths, []
    for name, model in models.items():
        dataset = on_cpu.to(model.device)
        read = partial(_read, model, dataset, options.statistics)
        read(lengths[:1])  # a warm-up
        seconds = [(read(lengths), read(lengths[-1:])) for _ in range(rounds)]
        every, longest = (statistics.median(column) for column in zip(*seconds, strict=True))
        rows.append(
            {
                "model": name,
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "num_rows": lengths[-1],
                "lengths": len(lengths),
                "draw_seconds": draw_seconds,
                "every_seconds": every,
                "longest_seconds": longest,
                "ratio": statistics.median(a / b for a, b in seconds),
                "peak_mb": peak_megabytes(),
            }
        )
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """The table as markdown."""
    header = ["model", "parameters", "rows", "lengths", "draw s", "all lengths s"]
    header += ["longest alone s", "ratio", "peak memory MB"]
    rows = [
        [
            *(f"{row.model}", f"{row.parameters:,}", f"{row.num_rows:,}", f"{row.lengths}"),
            *(f"{row.draw_seconds:.2f}", f"{row.every_seconds:.2f}", f"{row.longest_seconds:.2f}"),
            *(f"{row.ratio:.2f}", f"{row.peak_mb:,.0f}"),
        ]
        for row in table.itertuples()
    ]
    return pages.markdown(header, rows)


def _read(
    model: InContextModel, dataset: LengthDataset, by: Statistics, lengths: tuple[int, ...]
) -> float:
    """Seconds that reading at these lengths takes."""
    clock = time.process_time if model.device.type == "cpu" else time.perf_counter
    start = clock()
    for _ in read_prefixes(model, dataset, lengths, by):
        pass
    return clock() - start


def peak_megabytes() -> float:
    """Peak resident memory of the process in megabytes."""
    # The system counts kilobytes on Linux and bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e6 / 1024)
