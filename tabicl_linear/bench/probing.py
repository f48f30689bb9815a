"""What the callbacks that look at a model cost beside the training steps between two looks."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch

from tabicl_linear.analysis.figures import pixels
from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.bench.report import Table, Target
from tabicl_linear.callbacks.probing import Probing
from tabicl_linear.config import PROBES, build_callbacks, build_data, trainer_options
from tabicl_linear.training.task import InContextTask

MOST_SHARE = 0.03
"""Of the training time, that all of them together may take at their intervals."""

ROUNDS = 2
"""Of which the faster one counts."""

NOTES = (
    "One look: states or streams of the probe tasks, its Parquet file and its figure. Callbacks of "
    "one interval that look at the same tasks share states, which the first of them fits. Share: "
    "of the time of the training steps between two looks, at the interval of the config."
)


def probing_cost(
    task: InContextTask,
    seconds_per_batch: float,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str],
) -> tuple[Table, Target]:
    """Time a look of every callback, and compare with the steps of its interval.

    Args:
        task: The task of the config, on its device.
        seconds_per_batch: What training takes for a batch.
        configs: The config.
        overrides: Its overrides.
    """
    data = build_data(*configs, overrides=overrides)
    batches = trainer_options(*configs, overrides=overrides)["accumulate_grad_batches"]
    found = build_callbacks(*configs, overrides=overrides)
    looking = {name: callback for name, callback in found.items() if callback.every_n_steps}
    probes = {name: callback.draw(data).to(task.device) for name, callback in looking.items()}
    rounds = [_looks(looking, probes, task) for _ in range(ROUNDS)]
    rows = []
    for name, callback in looking.items():
        look = min(seconds[name] for seconds in rounds)
        between = callback.every_n_steps * batches * seconds_per_batch
        rows.append((name, callback.every_n_steps, look, look / between))
    columns = ["callback", "every n steps", "seconds a look", "share"]
    table = pd.DataFrame(rows, columns=columns)
    total = float(table["share"].sum())
    table["share"] = [f"{share:.2%}" for share in table["share"]]
    what = f"{len(rows)} callbacks that look at the model ({', '.join(PROBES)}), share of time"
    target = Target(what, MOST_SHARE, total, at_least=False, applies=not overrides)
    return Table("Looking at the model", table, NOTES), target


def _looks(
    callbacks: Mapping[str, Probing], probes: Mapping[str, Probe], task: InContextTask
) -> dict[str, float]:
    """Seconds of a look of each, with the states that the ones before it have fitted."""
    shared: list[tuple[int, Probe]] = []
    seconds = {}
    for name, callback in callbacks.items():
        probe = next(
            (
                probe
                for steps, probe in shared
                if steps == callback.every_n_steps and probe.has_tasks_of(probes[name])
            ),
            probes[name]._replace(known={}),
        )
        shared.append((callback.every_n_steps, probe))
        seconds[name] = _look(callback, task, probe)
    return seconds


def _look(callback: Probing, task: InContextTask, probe: Probe) -> float:
    """Seconds of one look, with what it writes."""
    began = time.perf_counter()
    with torch.no_grad():
        table = callback.look(task.model, probe)
    if table is not None:
        with TemporaryDirectory() as folder:
            table.to_parquet(Path(folder) / "look.parquet")
        callback.scalars(table)
        pixels(callback.figure(table, probe))
    return time.perf_counter() - began
