"""Training of one unit: `tabicl-linear fit` in a separate process, continued after stops."""

import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.pretrain_default.training import Training, newest_checkpoint
from experiments.study.store import CONFIG, UNIT, Unit, read_unit, write_json
from tabicl_linear import load_model
from tabicl_linear.cli.resume import Resume
from tabicl_linear.files import written_whole

RUN, SPENT, ERRORS = "run", "spent.json", "errors.txt"


class Stopped(RuntimeError):
    """The training was asked to stop; the same command continues it."""


def train(unit: Unit, store: Path, device: str, minutes: float | None = None) -> dict[str, Any]:
    """Train a unit to its end and return its record; a trained unit is not trained again.

    The standard error of the training goes to a file in the unit's folder. A training that fails is
    recorded with the last line of that file, and is tried again by the next run.

    Args:
        unit: What to train.
        store: Folder of the store.
        device: cpu or cuda.
        minutes: Minutes after which the training is stopped; it can be continued later.

    Raises:
        Stopped: It was stopped by a signal, or the minutes are over.
    """
    folder = store / unit.identity
    concluded = read_unit(folder)
    if concluded is not None and concluded["status"] == "trained":
        return concluded
    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(folder / CONFIG) as partial:
        partial.write_text(yaml.safe_dump(unit.config, sort_keys=False))
    options = ["--seed_everything", str(unit.seed)]
    training = Training(folder, [folder / CONFIG], device, options, errors=folder / ERRORS)
    before = _seconds_spent(folder)
    try:
        with training.taking_signals():
            training.run(
                folder / RUN,
                newest_checkpoint(folder / RUN),
                [],
                keep=lambda spent: write_json(folder / SPENT, {"seconds": before + 60 * spent.cpu}),
                minutes=minutes,
            )
    except subprocess.CalledProcessError as error:
        record = unit.about | {"status": "failed", "reason": _reason(folder, error.returncode)}
        write_json(folder / UNIT, record)
        return record
    step = unit.config["trainer"]["max_steps"]
    checkpoint = newest_checkpoint(folder / RUN)
    if checkpoint is None or Resume.read(checkpoint).step < step:
        raise Stopped(f"{unit}: stopped; repeat the command to go on")
    record = unit.about | {"status": "trained", "reason": ""} | _measured(folder, checkpoint, step)
    write_json(folder / UNIT, record)
    return record


def _reason(folder: Path, code: int) -> str:
    """Return the last line that a failed training printed, and its exit code."""
    printed = (folder / ERRORS).read_text(encoding="utf-8", errors="replace").split("\n")
    # A progress bar overwrites its line; only the last part was visible.
    lines = [line.rpartition("\r")[2].strip() for line in printed]
    last = next((line for line in reversed(lines) if line), "nothing was printed")
    return f"{last} (fit ended with {code})"


def _measured(folder: Path, checkpoint: Path, step: int) -> dict[str, Any]:
    model = load_model(checkpoint)
    metrics = pd.read_csv(checkpoint.parent / "metrics.csv")
    last = metrics.dropna(subset=["val/loss"]).iloc[-1]
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "steps": step,
        "train_seconds": round(_seconds_spent(folder), 1),
        "val_loss": float(last["val/loss"]),
        "val_roc_auc": float(last["val/roc_auc"]),
    }


def _seconds_spent(folder: Path) -> float:
    """Return the CPU seconds of all processes that have trained the unit so far."""
    path = folder / SPENT
    return float(pd.read_json(path, typ="series")["seconds"]) if path.is_file() else 0.0
