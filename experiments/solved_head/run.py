"""Pretrain the features of a head that is solved, on synthetic tasks alone.

    python -m experiments.solved_head.run --steps 1000 --output runs/solved_head

A step takes batches of the prior until enough tasks are kept: those of which rows left out say
that they carry nothing, or are trivial, are not (`tasks.Selection`). The loss is that of queries,
beside fixed features and beside these with trees, which are grown on the half of the context whose
labels the network reads. One process, one thread. Stopped anywhere, the same command goes on from
the last checkpoint and takes the steps that it would have taken: a step depends on the number of
its first batch, the weights and the optimiser alone. `metrics.csv` has what learned features take
from the loss of training tasks, and of fixed validation tasks.
"""

import argparse
import copy
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from experiments.solved_head.network import LearnedFeatures, LearnedOptions
from experiments.solved_head.tasks import (
    Baseline,
    Selection,
    Task,
    fixed_regressions,
    head_losses,
    learned,
    prepared,
    stream,
)
from tabicl_linear.backends.choice import tokenwise
from tabicl_linear.checkpoint_file import load_checkpoint, save_checkpoint
from tabicl_linear.data.stream import PriorStream, Stage
from tabicl_linear.files import written_whole
from tabicl_linear.kernels.chosen import using
from tabicl_linear.ridge_inputs import RidgeRegressions
from tabicl_linear.training.muon import MuonAdamW

CHECKPOINT, METRICS = "last.ckpt", "metrics.csv"
WARMUP = 30
"""Steps of the warm-up."""
MATRICES = {"*qkv.weight": 3, "*out.weight": 1, "*up.weight": 1, "*down.weight": 1}
CLIP = 3.0
AVERAGED = 0.99
"""Of the average of the weights that a step keeps: what is validated, and used afterwards."""
EVERY = 10
"""Steps of which the mean loss is a row of the metrics."""


def rate(step: int, steps: int) -> float:
    """Factor of the learning rate at a step: a warm-up, and half a cosine over all steps."""
    return min((step + 1) / WARMUP, 1.0) * (1 + math.cos(math.pi * step / steps)) / 2


class Run:
    """A training that can be stopped after any step.

    Args:
        arguments: Of the command.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        torch.manual_seed(arguments.seed)
        self.network = LearnedFeatures(LearnedOptions(dim=arguments.dim, depth=arguments.depth))
        self.average = copy.deepcopy(self.network)
        self.optimizer = MuonAdamW(
            self.network.named_parameters(),
            lr=arguments.lr,
            adamw_lr=arguments.adamw_lr,
            matrices=MATRICES,
        )
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.regressions = fixed_regressions()
        self.step, self.batch, self.history = 0, 0, list[dict[str, float]]()
        self.path: Path = arguments.output / CHECKPOINT
        if self.path.exists():
            self._resume()

    def _resume(self) -> None:
        saved = load_checkpoint(self.path, "delete it to begin anew")
        self.network.load_state_dict(saved["network"])
        self.average.load_state_dict(saved["average"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.history = saved["step"], saved["history"]
        self.batch = saved["batch"]

    def save(self) -> None:
        """Write checkpoint and metrics."""
        state: dict[str, Any] = {
            "options": asdict(self.network.options),
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "batch": self.batch,
            "history": self.history,
        }
        save_checkpoint(state, self.path)
        with written_whole(self.path.with_name(METRICS)) as partial:
            pd.DataFrame(self.history).to_csv(partial, index=False)

    def train(self) -> None:
        """Take the steps that are left."""
        arguments = self.arguments
        tasks = stream(arguments.seed, Stage.TRAIN, arguments.tokens)
        saved = began = time.monotonic()
        recent = list[dict[str, float]]()
        while self.step < arguments.steps:
            recent.append(self._step(tasks))
            self.step += 1
            if self.step % EVERY == 0:
                mean = pd.DataFrame(recent).mean().to_dict()
                each = (time.monotonic() - began) / len(recent)
                print(f"{self.step:6d}  {_line(mean)}  {each:.2f} s a step", flush=True)
                self.history.append({"step": self.step, **mean})
                recent, began = [], time.monotonic()
            if self.step % arguments.validate_every == 0:
                self._validate()
                began = time.monotonic()
            is_last = self.step == arguments.steps
            if is_last or time.monotonic() - saved > 60 * arguments.checkpoint_minutes:
                self.save()
                saved = time.monotonic()

    def _step(self, tasks: PriorStream) -> dict[str, float]:
        factor = rate(self.step, self.arguments.steps)
        for group, base in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = base * factor
        self.optimizer.zero_grad()
        sums = dict.fromkeys(("kept", "nothing", "trivial", "closed", "trees"), 0.0)
        while sums["kept"] < self.arguments.tasks:
            self._add(prepared(tasks.batch(self.batch), self.regressions), sums)
            self.batch += 1
        num_tasks = sums["kept"]
        for parameter in self.network.parameters():
            assert parameter.grad is not None, "a parameter that nothing hangs on"
            parameter.grad /= num_tasks
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP, error_if_nonfinite=True)
        self.optimizer.step()
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.network.parameters(), strict=True)
            for mean, parameter in pairs:
                mean.lerp_(parameter, max(1 - AVERAGED, 1 / (self.step + 1)))
        return sums | {name: sums[name] / num_tasks for name in ("closed", "trees")}

    def _add(self, task: Task, sums: dict[str, float]) -> None:
        """Add the gradients of the tasks of a batch that are kept, and what is counted of it."""
        baseline = Baseline.of(task)
        selection = Selection.of(task, baseline)
        index = selection.indices
        sums["kept"] += len(index)
        sums["nothing"] += int(selection.is_nothing.sum())
        sums["trivial"] += int(selection.is_trivial.sum())
        if not len(index):
            return
        closed, trees = with_learned(self.network, task.selected(index))
        (closed.sum() + trees.sum()).div(2).backward()
        sums["closed"] += float((closed.detach() - baseline.closed.queries[index]).sum())
        sums["trees"] += float((trees.detach() - baseline.trees.queries[index]).sum())

    def _validate(self) -> None:
        row = validated(self.average, self.regressions, self.arguments)
        self.history.append({"step": self.step, **row})
        print(f"{self.step:6d}  {_line(row)}", flush=True)


def _line(row: dict[str, float]) -> str:
    return "  ".join(f"{name} {number:.4f}" for name, number in row.items())


def with_learned(network: LearnedFeatures, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-losses of queries with learned features beside fixed ones, and beside trees as well."""
    features = learned(network, task)
    closed = head_losses([*task.fixed, features], task)
    trees = head_losses([*task.fixed, task.trees, features], task)
    return closed.queries, trees.queries


@torch.no_grad()
def validated(
    network: LearnedFeatures, regressions: RidgeRegressions, arguments: argparse.Namespace
) -> dict[str, float]:
    """Mean log-loss over fixed tasks without learned features, and what these add to it.

    Each difference is followed by its standard error over tasks.
    """
    tasks = stream(0, Stage.VALIDATE, arguments.tokens)
    of_batches = list[torch.Tensor]()
    for batch in range(arguments.validation_batches):
        task = prepared(tasks.batch(batch), regressions)
        baseline = Baseline.of(task)
        index = Selection.of(task, baseline).indices
        without = baseline.closed.queries[index], baseline.trees.queries[index]
        having = with_learned(network, task.selected(index))
        of_batches.append(torch.stack([*without, *having], dim=1))
    # Without learned features and with them: closed form, trees, closed form, trees, [tasks, 4].
    losses = torch.cat(of_batches)
    of = {"closed": losses[:, 0], "trees": losses[:, 1]}
    row = {f"validated_{name}": float(loss.mean()) for name, loss in of.items()}
    for number, (name, loss) in enumerate(of.items(), 2):
        difference = losses[:, number] - loss
        row[f"{name}_with_learned"] = float(difference.mean())
        row[f"{name}_error"] = float(difference.std() / len(difference) ** 0.5)
    return row


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=8192, help="cells a step")
    parser.add_argument("--tasks", type=int, default=16, help="fewest tasks a step")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--adamw-lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate-every", type=int, default=100)
    parser.add_argument("--validation-batches", type=int, default=16)
    parser.add_argument("--checkpoint-minutes", type=float, default=5.0)
    parser.add_argument("--output", type=Path, default=Path("runs/solved_head"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Train; stopped, the same command goes on."""
    arguments = parse(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with using(tokenwise(device=torch.device("cpu"), backend="auto")):
        Run(arguments).train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
