"""What the callbacks that look at a model cost beside the training steps between two looks."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

import pandas as pd
import torch

from tabicl_linear.analysis.figures import pixels
from tabicl_linear.bench.clock import timed
from tabicl_linear.bench.report import Table, Target
from tabicl_linear.callbacks.probing import Probing
from tabicl_linear.config import PROBES, build_callbacks, build_data, trainer_options
from tabicl_linear.data.datamodule import PriorDataModule
from tabicl_linear.training.task import InContextTask

MOST_SHARE = 0.03
"""Of the training time, that all of them together may take at their intervals."""

NOTES = (
    "One look: states or streams of the probe tasks, its Parquet file and its figure. Share: of "
    "the time of the training steps between two looks, at the interval of the config."
)


def probing_cost(
    task: InContextTask,
    seconds_per_batch: float,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str],
) -> tuple[Table, Target]:
    """Time a look of every callback of a config at its task, against the steps of its interval."""
    data = build_data(*configs, overrides=overrides)
    batches = trainer_options(*configs, overrides=overrides)["accumulate_grad_batches"]
    found = build_callbacks(*configs, overrides=overrides)
    every = {name: c.every_n_steps for name, c in found.items() if c.every_n_steps}
    looks = {name: _seconds_of_a_look(found[name], task, data) for name in every}
    cells = pd.DataFrame({"every n steps": every, "seconds a look": looks})
    share = cells["seconds a look"] / (cells["every n steps"] * batches * seconds_per_batch)
    cells["share"] = share.map("{:.2%}".format)
    what = f"{len(every)} callbacks that look at the model ({', '.join(PROBES)}), share of time"
    target = Target(what, MOST_SHARE, float(share.sum()), at_least=False, applies=not overrides)
    return Table("Looking at the model", cells.reset_index(names="callback"), NOTES), target


def _seconds_of_a_look(callback: Probing, task: InContextTask, data: PriorDataModule) -> float:
    """The shorter of two, with what each writes."""
    probe = callback.draw(data).to(task.device)

    @torch.no_grad()
    def look() -> None:
        table = callback.look(task.model, probe)
        if table is not None:
            with TemporaryFile() as file:
                table.to_parquet(file)
            callback.scalars(table)
            pixels(callback.figure(table, probe))

    return min(timed(look) for _ in range(2))
