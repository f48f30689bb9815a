"""Kills training runs at random moments, resumes them, and compares with a run never killed.

    python tests/kill_fuzz.py --kills 100

A process of its own, since it forks. A run has validations inside and at the end of accumulation
windows, early stopping, Lightning's `ModelCheckpoint` by a score, and looks; every other run has
two gloo ranks. Half of the kills come at a random time. The other half come at a random event
(a batch, a row of `metrics.csv`, a file about to get its name): those that matter are short.
"""

import argparse
import contextlib
import csv
import functools
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch
from command_line import TINY
from resumed_runs import assert_same

from tabicl_linear import files
from tabicl_linear.__main__ import main as program
from tabicl_linear.parquet import read_table
from tabicl_linear.training.loggers import MetricsFile
from tabicl_linear.training.task import InContextTask

LIMIT = 180.0
"""Seconds after which a run hangs."""
CALLBACKS = [
    {
        "class_path": "EarlyStopping",
        "init_args": {"monitor": "val/loss", "patience": 4, "min_delta": 10.0},
    },
    {"class_path": "ModelCheckpoint", "init_args": {"monitor": "val/loss"}},
]
OPTIONS = [
    *("--trainer.max_steps", "14", "--trainer.val_check_interval", "3"),
    *("--trainer.callbacks", json.dumps(CALLBACKS), "--checkpoint.every_n_steps", "4"),
    *("--write_rates.every_n_steps", "0", "--state_norms.every_n_steps", "3"),
    *("--cosine_drift.every_n_steps", "0", "--length_probe.every_n_steps", "0"),
]
RANKS = {
    1: [],
    2: [
        *("--trainer.accelerator", "cpu", "--trainer.devices", "2"),
        *("--trainer.strategy", "ddp_fork"),
    ],
}


def train(options, root, moment, log):
    """`tabicl-linear fit` in a forked process of a group of its own; its process id.

    Args:
        options: Of `fit`.
        root: Run folders are made there.
        moment: Event at which to end it with SIGKILL, counted from 1, and whether one rank alone
            dies; None for none.
        log: File that takes a line for each event of the first rank.
    """
    if child := os.fork():
        return child
    os.setsid()
    for stream in (1, 2):
        os.dup2(os.open(f"{log}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    code = 1
    try:
        count_events(moment, log)
        code = program(["fit", *options, "--trainer.default_root_dir", str(root)])
    except BaseException:  # a forked process must not return into its parent's code
        traceback.print_exc()
    finally:
        os._exit(code)


def count_events(moment, log):
    """Count events of the first rank, and end the run before or after the chosen one."""
    seen = 0

    def counted(owner, name, what):
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args, **kwargs):
            event(f"before {what}")
            value = original(*args, **kwargs)
            event(f"after {what}")
            return value

        setattr(owner, name, call)

    def event(what):
        nonlocal seen
        if torch.distributed.is_initialized() and torch.distributed.get_rank():
            return
        seen += 1
        with open(log, "a") as file:
            file.write(f"{what}\n")
        if moment is not None and seen == moment[0]:
            os.kill(os.getpid(), signal.SIGKILL) if moment[1] else os.killpg(0, signal.SIGKILL)

    counted(InContextTask, "training_step", "a training batch")
    counted(InContextTask, "validation_step", "a validation batch")
    counted(MetricsFile, "log_metrics", "a row")
    counted(files.os, "replace", "a file gets its name")


def ended(child, seconds=LIMIT):
    """The exit status of a run; None if it is still going after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            end_group(child)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def end_group(child):
    """End what is left of a run, and give it time to let go of the lock."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
        time.sleep(0.2)


def last_checkpoint(root):
    """The checkpoint of the newest run folder; None if it has none."""
    folders = sorted(root.glob("version_*"), key=lambda path: int(path.name.split("_")[1]))
    path = folders[-1] / "last.ckpt" if folders else root
    return path if path.is_file() else None


def whole(ranks, root):
    """A run that nobody kills: its folder, seconds and number of events."""
    start = time.monotonic()
    log = root / "events"
    root.mkdir()
    code = ended(train([*TINY, *OPTIONS, *RANKS[ranks]], root / "runs", None, log))
    assert code == 0, (root / "events.out").read_text()
    return root / "runs" / "version_0", time.monotonic() - start, len(log.read_text().splitlines())


def killed(ranks, root, random, seconds, events):
    """A run that is killed at least once and resumed to its end: its folder, and the moments."""
    root.mkdir()
    moments = []
    while True:
        last = last_checkpoint(root / "runs")
        options = [*TINY, *OPTIONS, *RANKS[ranks]] if last is None else ["--ckpt_path", str(last)]
        log = root / f"events_{len(moments)}"
        finish = bool(moments) and random.random() < 0.6
        by_event = random.random() < 0.5
        alone = ranks > 1 and random.random() < 0.2
        moment = (random.randint(1, events), alone) if by_event and not finish else None
        child = train(options, root / "runs", moment, log)
        wait = LIMIT if finish or by_event else random.uniform(0, seconds)
        status = ended(child, wait)
        if status is None and not (finish or by_event):
            os.killpg(child, signal.SIGKILL)
            ended(child)
            moments.append("at a random time")
        elif status is None:
            end_group(child)
            raise AssertionError(f"hangs after {moments}: {log}.out")
        elif status == 0:
            if moments:
                return last_checkpoint(root / "runs").parent, moments
            return None, moments  # it ended before the kill
        else:
            said = log.read_text().splitlines() if log.exists() else []
            if moment is None or len(said) < moment[0]:
                raise AssertionError(f"exit code {status} after {moments}: {log}.out")
            moments.append(said[moment[0] - 1] + (", one rank alone" if alone else ""))


def rows(folder):
    """Of `metrics.csv`, without times."""
    with (folder / "metrics.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [
        {name: cell for name, cell in line.items() if cell and not name.startswith("wall_clock")}
        for line in lines
    ]


def looks(folder):
    """Tables of the callbacks that look, by file."""
    paths = sorted((folder / "metrics").rglob("*.parquet"))
    return {str(path.relative_to(folder)): read_table(path).to_dict("list") for path in paths}


def scores(checkpoint):
    """What callbacks keep of the scores that they read, without paths."""
    kept = {}
    for name, state in checkpoint["callbacks"].items():
        if name.startswith("EarlyStopping"):
            kept[name] = state
        if name.startswith("ModelCheckpoint"):
            best = torch.load(state["best_model_path"], weights_only=True)
            kept[name] = (state["best_model_score"], best["global_step"])
    return kept


def differences(one, two):
    """In what a resumed run differs from one that was never killed."""
    checkpoints = [torch.load(folder / "last.ckpt", weights_only=True) for folder in (one, two)]
    result = []
    try:
        assert_same(*checkpoints)
    except AssertionError as error:
        result.append(f"checkpoint: {str(error).splitlines()[0]}")
    steps = [checkpoint["global_step"] for checkpoint in checkpoints]
    if steps[0] != steps[1]:
        result.append(f"steps: {steps[1]} in place of {steps[0]}")
    for what, read in (("rows", rows), ("looks", looks)):
        parts = [read(folder) for folder in (one, two)]
        if str(parts[0]) != str(parts[1]):
            result.append(f"{what}: {len(parts[1])} in place of {len(parts[0])}, or others")
    if str(scores(checkpoints[0])) != str(scores(checkpoints[1])):
        result.append(f"callbacks: {scores(checkpoints[1])} in place of {scores(checkpoints[0])}")
    return result


def fuzz(kills, seed, folder):
    """Kill so often; the exit code."""
    random = Random(seed)
    references = {ranks: whole(ranks, folder / f"whole_{ranks}") for ranks in RANKS}
    counts, lost, runs, number = Counter(), [], Counter(), 0
    while counts.total() < kills:
        ranks = 1 + number % 2
        reference, *extent = references[ranks]
        number += 1
        try:
            run, moments = killed(ranks, folder / str(number), random, *extent)
        except AssertionError as error:
            lost.append(f"run {number}, {ranks} ranks: {error}")
            break
        if run is None:
            continue
        runs[ranks] += 1
        counts.update(moments)
        for difference in differences(reference, run):
            lost.append(f"run {number}, {ranks} ranks, killed {moments}: {difference}")
            print(lost[-1], flush=True)
    for moment, count in counts.most_common():
        print(f"{count:5d} kills {moment}")
    for ranks, count in runs.items():
        print(f"{count:5d} runs by {ranks} rank{'s' if ranks > 1 else ''}, resumed to their end")
    print(f"{counts.total()} kills, {len(lost)} differences", *lost, sep="\n")
    return bool(lost)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="new folder for all runs")
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        place = given.keep or Path(stack.enter_context(TemporaryDirectory()))
        place.mkdir(parents=True, exist_ok=True)
        return int(fuzz(given.kills, given.seed, place))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
