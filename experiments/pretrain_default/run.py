"""Pretrain the default weights for a number of minutes, or go on where the last leg ended.

    python -m experiments.pretrain_default.run --minutes 25 [--output runs/default]

Stopped anywhere, the same command goes on from the newest checkpoint.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from experiments.pretrain_default import budget as budgets
from experiments.pretrain_default.budget import Budget
from experiments.pretrain_default.evaluate import CONTEXT_ROWS, TASKS, evaluate, markdown
from experiments.pretrain_default.legs import Leg, append, describe_hardware, seen
from experiments.pretrain_default.training import OutputInUse, Training
from tabicl_linear import load_model
from tabicl_linear.checkpoint import export
from tabicl_linear.cli.resume import Resume

HERE = Path(__file__).parent
FIRST_TOTAL = {"cpu": 20_000, "cuda": 100_000}
"""Optimiser steps that the first part of a new budget is scheduled over, before any is measured."""
SHORTEST_MINUTES = 0.02


def plan(arguments: argparse.Namespace, before: Budget | None, step: int) -> Budget:
    """The budget that a leg starts with, with room for the leg."""
    budget = before or Budget(arguments.minutes, total_steps=FIRST_TOTAL[arguments.device])
    budget = budget.extended(arguments.minutes, arguments.planned_minutes)
    if arguments.planned_steps is not None:
        return budget.fixed(arguments.planned_steps)
    return budget.released().replanned(step, step, budget.spent_minutes)


def train(training: Training, budget: Budget, minutes: float) -> Budget:
    """Train for one leg, part by part, each over the total that the one before leads to."""
    ends = budget.spent_minutes + minutes
    step = _step(training)
    while not training.signum and budget.spent_minutes < ends - SHORTEST_MINUTES:
        if budget.fixed_steps and step >= budget.total_steps:
            break
        before, began = step, budget.spent_minutes
        budget = training.run(budget, min(budget.part(), ends - began))
        step = _step(training)
        if step >= budget.total_steps and budget.is_last_part:
            break
        budget = budget.replanned(step, step - before, budget.spent_minutes - began)
        budgets.save(budget, training.budget_path)
    return budget


def conclude(arguments: argparse.Namespace, checkpoint: Path, leg: Leg) -> None:
    """Score the checkpoint of a leg, export it and write the leg down."""
    table = evaluate(
        load_model(checkpoint),
        lengths=tuple(arguments.lengths),
        tasks=arguments.tasks,
        device=arguments.device,
    )
    weights = arguments.output / "default.safetensors"
    export(checkpoint, weights)
    scores = {name: float(table.loc["mean", name]) for name in ("loss", "roc_auc")}
    append(leg._replace(**scores), arguments.output)
    print(f"\n{markdown(table)}\n\ncheckpoint  {checkpoint}\nweights     {weights}")
    print(f"legs        {arguments.output / 'legs.md'}")


def _step(training: Training) -> int:
    checkpoint = training.checkpoint()
    return 0 if checkpoint is None else Resume.read(checkpoint).step


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, required=True, help="wall time of this leg")
    parser.add_argument("--planned-minutes", type=float, help="wall time of all legs together")
    parser.add_argument("--planned-steps", type=int, help="steps of all legs, instead of the time")
    parser.add_argument("--output", type=Path, default=Path("runs/default"))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--config", type=Path, action="append", default=[], help="overlay")
    parser.add_argument("--tasks", type=int, default=TASKS, help="validation tasks a length")
    parser.add_argument("--lengths", type=int, nargs="+", default=CONTEXT_ROWS)
    arguments = parser.parse_args(argv)
    if arguments.minutes <= 0:
        parser.error(f"--minutes {arguments.minutes}: give a positive number")
    arguments.output = arguments.output.resolve()
    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run a leg; return 0, the code of a training that failed, or 128 + the signal."""
    arguments = _parse(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    device = arguments.device
    configs = [HERE / f"{device}.yaml", *(path.resolve() for path in arguments.config)]
    training = Training(arguments.output, configs, device)
    before = budgets.load(training.budget_path)
    spent = 0.0 if before is None else before.spent_minutes
    try:
        with training.taking_signals():
            budget = train(training, plan(arguments, before, _step(training)), arguments.minutes)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    except OutputInUse as error:
        sys.stderr.write(f"{error}\n")
        return 2
    checkpoint = training.checkpoint()
    if checkpoint is None:
        sys.stderr.write("The leg was too short for a single optimiser step; give more minutes.\n")
        return 128 + training.signum if training.signum else 1
    leg = Leg(
        hardware=describe_hardware(device),
        minutes=budget.spent_minutes - spent,
        steps=Resume.read(checkpoint).step,
        total_steps=budget.total_steps,
        **seen(checkpoint),
    )
    if training.signum:
        # Whoever stops a leg wants it gone soon: no scores.
        append(leg, arguments.output)
        return 128 + training.signum
    conclude(arguments, checkpoint, leg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
