"""`tabicl-linear bench train --curves`: does training in 16 bits follow training in float32?"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from tabicl_linear.bench.figures import SMOOTHING, draw_curves
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.options import Options
from tabicl_linear.bench.progress import ProgressLine
from tabicl_linear.bench.report import Report, Table
from tabicl_linear.bench.train import make_step
from tabicl_linear.config import build_data, build_task
from tabicl_linear.training.schedule import WarmupCosine

OTHER_WEIGHTS = "float32, other initial weights"
NOTES = (
    "Same data in the same order, same initial weights, optimiser and schedule; only autocast "
    "differs. The line with other initial weights says what difference means nothing. "
    "`difference`: mean over the second half of the steps, each step on the same batch, with its "
    f"standard error; `furthest`: the largest difference of means over {SMOOTHING} steps.",
)


def run(
    options: Options,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str] = (),
    precisions: Sequence[str] = ("float32", "bf16"),
    steps: int = 300,
) -> Report:
    """Train from the same seed in every precision; compare the losses with the first one's."""
    machine = describe(options.device)
    progress = ProgressLine("bench train --curves")
    runs = [(name, name, overrides) for name in precisions]
    runs.append((OTHER_WEIGHTS, "float32", [*overrides, "seed_everything=1"]))
    losses: dict[str, list[float]] = {}
    for number, (name, precision, own) in enumerate(runs):
        stream = build_data(*configs, overrides=overrides).stream("train")
        task = build_task(*configs, overrides=own).to(options.device)
        optimizer = task.optimizer(task.parameters())
        schedule = task.schedule(optimizer)
        if isinstance(schedule, WarmupCosine):
            schedule.plan(steps)
        values: list[float] = []
        for index in range(steps):
            step = make_step(
                task, stream.batch(index).to(options.device), precision, optimizer=optimizer
            )
            values.append(float(step()))
            schedule.step()
            progress.advance(number * steps + index + 1, len(runs) * steps)
        losses[name] = values
    stem = f"curves-{configs[-1].stem}"
    figure = draw_curves(losses, options.output / f"{stem}.png")
    return Report(
        name=stem,
        command=options.command,
        machine=machine,
        settings={
            "configs": [str(c) for c in configs],
            "overrides": list(overrides),
            "steps": steps,
            "figure": figure.name,
        },
        tables=[compare(losses)],
        raw={"losses": losses},
    )


def compare(losses: dict[str, list[float]]) -> Table:
    """Final loss of every curve, and how far it is from the first curve."""
    (_, base), *_ = losses.items()
    half = len(base) // 2
    rows: list[tuple[str, float, str | None, float | None]] = []
    for name, values in losses.items():
        last = sum(values[half:]) / len(values[half:])
        if values is base:
            rows.append((name, last, None, None))
            continue
        differences = torch.tensor(values, dtype=torch.float64) - torch.tensor(
            base, dtype=torch.float64
        )
        late = differences[half:]
        error = (late.std() / math.sqrt(len(late))).item() if len(late) > 1 else math.nan
        window = min(SMOOTHING, len(differences))
        smooth = differences.unfold(0, window, 1).mean(-1)
        rows.append(
            (name, last, f"{late.mean().item():+.4f} ± {error:.4f}", smooth.abs().max().item())
        )
    return Table(
        "Loss curves",
        ("", "mean loss, second half", "difference", "furthest"),
        rows,
        NOTES,
    )
