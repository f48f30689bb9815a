"""Pretrain the default weights for one leg: continue the trunk, then branch off a decay.

    python -m experiments.pretrain_default.run --minutes 20 [--output runs/default]

The trunk keeps a constant learning rate and has no planned end; the next leg continues it. The
decay takes the last share of a leg, in its own folder; its weights are exported and scored. If
stopped, the same command continues the same leg from the newest checkpoint.
"""

import argparse
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import reduce
from pathlib import Path

import torch

from experiments.development.tables import folder_from_environment, load_tables
from experiments.pretrain_default import budget as budgets
from experiments.pretrain_default.budget import Budget, Spent
from experiments.pretrain_default.conclude import BUDGET, abandon, conclude
from experiments.pretrain_default.evaluate import CONTEXT_ROWS, TASKS
from experiments.pretrain_default.training import (
    OutputInUse,
    Training,
    newest_checkpoint,
    newest_step,
)
from tabicl_linear.cli.resume import Resume
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.overlays import expanded, laid_over

HERE = Path(__file__).parent
DECAY_SHARE = 0.15
SCHEDULE = "WarmupStableDecay"
NO_END = 1_000_000_000
"""Maximum steps of a trunk measured in minutes: never reached, and unknown to its schedule."""


class TooShort(RuntimeError):
    """The trunk has not reached a step at which a decay could start."""


def train(training: Training, budget: Budget, output: Path) -> Budget:
    """Train the rest of a leg; return its budget afterwards.

    Raises:
        TooShort: The minutes ended before the warm-up did, or before a single step.
        subprocess.CalledProcessError: Training failed.
    """
    step = newest_step(output / "trunk")
    # Saved before any training, so that a leg that is killed at once still knows where it began.
    budgets.save(budget, output / BUDGET)
    if not budget.is_decaying and not budget.is_trunk_over(step):
        budget = _train_trunk(training, budget, output)
        step = newest_step(output / "trunk")
    if training.signum:
        return budget
    if budget.share and not budget.is_decaying:
        _require_start(output, step, budget.first_step)
        shutil.rmtree(output / "decay", ignore_errors=True)
        budget = budget.with_decay(step)
        budgets.save(budget, output / BUDGET)
    return _train_decay(training, budget, output) if budget.is_decaying else budget


def _train_trunk(training: Training, budget: Budget, output: Path) -> Budget:
    def after(spent: Spent) -> Budget:
        return replace(budget, trunk=budget.trunk + spent)

    left = budget.trunk_minutes_left
    until = f"to step {budget.trunk_end}" if left is None else f"{left:.1f} {budget.clock} minutes"
    print(f"Trunk: from step {newest_step(output / 'trunk')}, {until}", flush=True)
    spent = training.run(
        output / "trunk",
        newest_checkpoint(output / "trunk"),
        ["--trainer.max_steps", str(budget.trunk_end or NO_END)],
        keep=lambda spent: budgets.save(after(spent), output / BUDGET),
        minutes=left,
        clock=budget.clock,
    )
    return after(spent)


def _train_decay(training: Training, budget: Budget, output: Path) -> Budget:
    assert budget.decay_start is not None
    assert budget.decay_steps is not None
    end = budget.decay_start + budget.decay_steps
    if newest_step(output / "decay") >= end:
        return budget

    def after(spent: Spent) -> Budget:
        return replace(budget, decay=budget.decay + spent)

    print(f"Decay: from step {budget.decay_start} to {end}", flush=True)
    schedule = "--model.schedule.init_args"
    spent = training.run(
        output / "decay",
        newest_checkpoint(output / "decay") or newest_checkpoint(output / "trunk"),
        [
            *("--trainer.max_steps", str(end)),
            *(f"{schedule}.decay_start", str(budget.decay_start)),
            *(f"{schedule}.decay_steps", str(budget.decay_steps)),
        ],
        keep=lambda spent: budgets.save(after(spent), output / BUDGET),
    )
    return after(spent)


def _require_schedule(configs: list[Path]) -> None:
    """Refuse a schedule with a planned end, before any training."""
    tree = reduce(laid_over, map(expanded, configs))
    schedule = tree["model"]["schedule"]["class_path"]
    if schedule.rpartition(".")[2] != SCHEDULE:
        raise ConfigError(
            f"model.schedule={schedule}: a trunk that goes on leg by leg needs {SCHEDULE}; leave "
            "the schedule to the experiment's own config."
        )


def _require_start(output: Path, step: int, first_step: int) -> None:
    checkpoint = newest_checkpoint(output / "trunk")
    if checkpoint is None or step <= first_step:
        raise TooShort("The leg was too short for a single optimiser step; give more minutes.")
    schedule = Resume.read(checkpoint).config["model"]["schedule"]
    warmup = schedule["init_args"]["warmup_steps"]
    if step < warmup:
        raise TooShort(
            f"The trunk is at step {step}, within its warm-up of {warmup} steps: no decay starts "
            "there; the next leg goes on with it."
        )


def run_leg(arguments: argparse.Namespace, options: list[str]) -> int:
    """Train one leg, score it and log it.

    Args:
        arguments: Arguments of `make_parser`.
        options: Further options of `tabicl-linear fit`.

    Returns:
        0, the exit code of a failed training, 1 for a leg that was too short, 2 for bad input or a
        folder in use, or 128 + the signal.
    """
    output: Path = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    configs = [HERE / f"{arguments.device}.yaml", *(path.resolve() for path in arguments.config)]
    training = Training(output, configs, arguments.device, options)
    try:
        _require_schedule(configs)
        if folder_from_environment() is not None:
            load_tables()  # unreadable tables are reported before the training
        with training.taking_signals():
            budget = train(training, _plan(arguments, output), output)
        if training.signum:
            # A stopped leg ends quickly, without scores, and can be continued later.
            return 128 + training.signum
        print(conclude(output, budget, arguments))
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    except TooShort as error:
        sys.stderr.write(f"{error}\n")
        abandon(output, arguments)
        return 1
    except (OutputInUse, ConfigError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _plan(arguments: argparse.Namespace, output: Path) -> Budget:
    asked = Budget(
        minutes=arguments.cpu_minutes or arguments.minutes,
        steps=arguments.steps,
        share=0.0 if arguments.no_decay else arguments.decay_share,
        clock="cpu" if arguments.cpu_minutes else "wall",
        first_step=newest_step(output / "trunk"),
    )
    before = budgets.load(output / BUDGET)
    return asked if before is None else before.asked(asked)


def make_parser(description: str) -> argparse.ArgumentParser:
    """The options of a leg."""
    parser = argparse.ArgumentParser(description=description)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float, help="wall time of this leg")
    length.add_argument("--cpu-minutes", type=float, help="CPU time of this leg (Linux)")
    length.add_argument("--steps", type=int, help="optimiser steps of this leg")
    parser.add_argument("--decay-share", type=float, default=DECAY_SHARE, help="of the leg")
    parser.add_argument("--no-decay", action="store_true", help="go on with the trunk only")
    parser.add_argument("--output", type=Path, default=Path("runs/default"))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--config", type=Path, action="append", default=[], help="overlay")
    parser.add_argument("--tasks", type=int, default=TASKS, help="validation tasks a length")
    parser.add_argument("--lengths", type=int, nargs="+", default=CONTEXT_ROWS)
    return parser


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse invalid numbers, and choose the device."""
    for name in ("minutes", "cpu_minutes", "steps"):
        value = getattr(arguments, name)
        if value is not None and value <= 0:
            parser.error(f"--{name.replace('_', '-')} {value}: give a positive number")
    if arguments.cpu_minutes and sys.platform != "linux":
        parser.error("--cpu-minutes: only Linux reports the CPU time of a child; give --minutes")
    if not 0 < arguments.decay_share < 1:
        parser.error(f"--decay-share {arguments.decay_share}: give a share between 0 and 1")
    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"


def main(argv: list[str] | None = None) -> int:
    """Run a leg; return the exit code of `run_leg`."""
    parser = make_parser(__doc__.splitlines()[0])
    arguments = parser.parse_args(argv)
    check(parser, arguments)
    return run_leg(arguments, [])


if __name__ == "__main__":
    sys.exit(main())
