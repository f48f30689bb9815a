"""Does training in 16 bits follow training in float32? Loss curves over each other.

    python -m experiments.precision.run --config configs/quick.yaml --steps 150

Same data in the same order, same initial weights, optimiser and schedule; only autocast differs.
One more run has other initial weights, which shows how large a difference means nothing.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch.callbacks import LambdaCallback

from experiments.precision import curves
from tabicl_linear.bench.cases import progress
from tabicl_linear.bench.measurement_tables import Report, Table
from tabicl_linear.bench.training import PRECISIONS, make_trainer
from tabicl_linear.cli.bench import save
from tabicl_linear.config import build_data, build_task, trainer_options
from tabicl_linear.machine import describe
from tabicl_linear.training.noise import without_noise

NOTES = (
    "`difference`: mean over the second half of the steps, each step on the same batch, with its "
    "standard error; `furthest`: the largest difference of means over "
    f"{curves.SMOOTHING} steps."
)


def train(
    configs: Sequence[Path],
    overrides: Sequence[str],
    precisions: Sequence[str],
    steps: int,
    device: torch.device,
) -> pd.DataFrame:
    """The loss of every step, a column for each precision and one for other initial weights."""
    runs = [(name, name, overrides) for name in precisions]
    other = [*overrides, "seed_everything=1"]
    runs.append((f"{precisions[0]}, other initial weights", precisions[0], other))
    losses: dict[str, list[float]] = {name: [] for name, *_ in runs}
    clipping = trainer_options(*configs, overrides=overrides)["gradient_clip_val"]
    with progress("loss curves", len(runs) * steps) as bar, without_noise():
        for name, precision, own in runs:

            def keep(*arguments: Any, curve: list[float] = losses[name]) -> None:
                curve.append(float(arguments[2]["loss"]))
                bar.update()

            callback = LambdaCallback(on_train_batch_end=keep)
            trainer = make_trainer(device, precision, callback, clipping, max_steps=steps)
            data = build_data(*configs, overrides=overrides)
            trainer.fit(build_task(*configs, overrides=own), datamodule=data)
    return pd.DataFrame(losses)


def main() -> int:
    """Train, print the table and write it with its figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, action="append", help="config and its overlays")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, default=["float32", "bf16"], metavar="P"
    )
    parser.add_argument("--steps", type=int, default=300, help="optimiser steps of a run (300)")
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda")
    parser.add_argument("--output", type=Path, default=Path("runs/bench"), help="folder for files")
    arguments = parser.parse_args()
    configs, device = arguments.config or [Path("configs/quick.yaml")], arguments.device
    if "fp16" in arguments.precision and device.type == "cpu":
        parser.error("--precision fp16: it is not available for training on a CPU; use bf16.")
    losses = train(configs, arguments.override, arguments.precision, arguments.steps, device)
    report = Report(
        name=f"curves-{configs[-1].stem}",
        settings={"configs": [str(c) for c in configs], "steps": arguments.steps},
        tables=[Table("Loss curves", curves.compared(losses), NOTES)],
        raw={"losses": losses.to_dict("list")},
        figure=curves.figure(losses),
        command=shlex.join(["python", "-m", "experiments.precision.run", *sys.argv[1:]]),
        machine=describe(device),
    )
    save(report, arguments.output)
    print(report.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
