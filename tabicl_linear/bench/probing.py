"""The cost of callbacks that look at a model, relative to the training steps between two looks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import pandas as pd
import torch

from tabicl_linear.analysis.cards import pixels
from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.bench.clock import timed
from tabicl_linear.bench.measurement_tables import Table, Target
from tabicl_linear.callbacks.probing import Probing
from tabicl_linear.config import PROBES, build_callbacks, build_data, trainer_options
from tabicl_linear.training.task import InContextTask

MOST_SHARE = 0.03
"""Largest share of the training time that all these callbacks together may take."""

NOTES = (
    "One look: states or streams, Parquet file and figure. Callbacks of one interval and the same "
    "tasks share states, which the first of them fits. Share: of the steps between two looks."
)


def probing_cost(
    task: InContextTask,
    seconds_per_batch: float,
    clock: Callable[[], float],
    configs: Sequence[Path],
    overrides: Sequence[str],
) -> tuple[Table, Target]:
    """Time one look of every callback of a config, and compare it with the steps of its interval.

    Args:
        task: The task whose model is looked at.
        seconds_per_batch: Time of a training step on one batch.
        clock: Returns the time in seconds.
        configs: Config files with the callbacks.
        overrides: Changes of the configs; with any, the target does not apply.
    """
    data = build_data(*configs, overrides=overrides)
    batches = trainer_options(*configs, overrides=overrides)["accumulate_grad_batches"]
    looking, every = dict[str, tuple[Probing, Probe]](), dict[str, int]()
    for name, callback in build_callbacks(*configs, overrides=overrides).items():
        if callback.every_n_steps:
            looking[name] = callback, callback.draw(data).to(task.device)
            every[name] = callback.every_n_steps
    rounds = pd.DataFrame([_seconds_of_looks(looking, task, clock) for _ in range(2)])
    cells = pd.DataFrame({"every n steps": every, "seconds a look": rounds.min()})
    share = cells["seconds a look"] / (cells["every n steps"] * batches * seconds_per_batch)
    cells["share"] = share.map("{:.2%}".format)
    what = f"{len(every)} callbacks that look at the model ({', '.join(PROBES)}), share of time"
    target = Target(what, MOST_SHARE, float(share.sum()), at_least=False, applies=not overrides)
    return Table("Looking at the model", cells.reset_index(names="callback"), NOTES), target


def _seconds_of_looks(
    looking: Mapping[str, tuple[Probing, Probe]], task: InContextTask, clock: Callable[[], float]
) -> dict[str, float]:
    """Time a look of each callback and its output; they share fitted states as in training."""
    seconds: dict[str, float] = {}
    pool: list[tuple[int, Probe]] = []
    for name, (callback, own) in looking.items():
        every = callback.every_n_steps
        alike = [probe for n, probe in pool if n == every and probe.has_tasks_of(own)]
        pool.append((every, alike[0] if alike else own._replace(states={})))
        seconds[name] = timed(partial(_look, callback, task, pool[-1][1]), clock)
    return seconds


@torch.no_grad()
def _look(callback: Probing, task: InContextTask, probe: Probe) -> None:
    table = callback.look(task.model, probe)
    if table is not None:
        with TemporaryFile() as file:
            table.to_parquet(file)
        callback.scalars(table)
        for figure in callback.pictures(table, probe).values():
            pixels(figure)
