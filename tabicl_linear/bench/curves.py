"""`tabicl-linear bench train --curves`: does training in 16 bits follow training in float32?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, LightningModule, Trainer

from tabicl_linear.bench.cases import Options, progress
from tabicl_linear.bench.figures import SMOOTHING, draw_curves
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.report import Report, Table
from tabicl_linear.bench.training import clipping, make_trainer
from tabicl_linear.config import build_data, build_task
from tabicl_linear.training.noise import without_noise

NOTES = (
    "Same data in the same order, same initial weights, optimiser and schedule; only autocast "
    "differs. The line with other initial weights says what difference means nothing. "
    "`difference`: mean over the second half of the steps, each step on the same batch, with its "
    f"standard error; `furthest`: the largest difference of means over {SMOOTHING} steps."
)


class _Losses(Callback):
    """Keeps the loss of every step, and tells of it."""

    def __init__(self, told: Callable[[], object]) -> None:
        self.told = told
        self.values: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any
    ) -> None:
        """Keep the loss."""
        self.values.append(float(outputs["loss"]))
        self.told()


def run(
    options: Options,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str] = (),
    precisions: Sequence[str] = ("float32", "bf16"),
    steps: int = 300,
) -> Report:
    """Train from the same seed in every precision; compare the losses with the first one's."""
    runs = [(name, name, overrides) for name in precisions]
    runs.append(("float32, other initial weights", "float32", [*overrides, "seed_everything=1"]))
    losses = {}
    train = {"max_steps": steps, "gradient_clip_val": clipping(configs, overrides)}
    with progress("bench train --curves", len(runs) * steps) as bar, without_noise():
        for name, precision, own in runs:
            task, data = (
                build_task(*configs, overrides=own),
                build_data(*configs, overrides=overrides),
            )
            callback = _Losses(bar.update)
            make_trainer(options.device, precision, callback, **train).fit(task, datamodule=data)
            losses[name] = callback.values
    stem = f"curves-{configs[-1].stem}"
    figure = draw_curves(pd.DataFrame(losses), options.output / f"{stem}.png")
    return Report(
        name=stem,
        command=options.command,
        machine=describe(options.device),
        settings={"configs": [str(c) for c in configs], "steps": steps, "figure": figure.name},
        tables=[compare(pd.DataFrame(losses))],
        raw={"losses": losses},
    )


def compare(losses: pd.DataFrame) -> Table:
    """Final loss of every curve, and how far it is from the first curve."""
    differences = losses.sub(losses.iloc[:, 0], axis=0)
    late = differences.iloc[len(losses) // 2 :]
    texts = [f"{m:+.4f} ± {e:.4f}" for m, e in zip(late.mean(), late.sem(), strict=True)]
    smooth = differences.rolling(min(SMOOTHING, len(losses))).mean().abs().max()
    cells = {
        "": losses.columns,
        "mean loss, second half": losses.iloc[len(losses) // 2 :].mean().to_list(),
        "difference": [None, *texts[1:]],
        "furthest": [None, *smooth.to_list()[1:]],
    }
    return Table("Loss curves", pd.DataFrame(cells), NOTES)
