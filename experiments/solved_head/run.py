"""Pretrain the features of a head that is solved, on synthetic tasks alone.

    python -m experiments.solved_head.run --steps 7000 --output runs/solved_head

One process, one thread. Stopped anywhere, the same command goes on from the last checkpoint and
takes the steps that it would have taken: a step depends on its number, the weights and the
optimiser alone. Losses of training and of fixed validation tasks are in `metrics.csv`.
"""

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from experiments.solved_head.tasks import fixed_regressions, learned, losses, prepared, stream
from tabicl_linear.checkpoint_file import load_checkpoint, save_checkpoint
from tabicl_linear.data.stream import PriorStream, Stage
from tabicl_linear.files import written_whole
from tabicl_linear.ridge_inputs import RidgeRegressions
from tabicl_linear.solved_head import LearnedFeatures, LearnedOptions
from tabicl_linear.training.muon import MuonAdamW

CHECKPOINT, METRICS = "last.ckpt", "metrics.csv"
WARMUP, DECAY = 200, 0.4
"""Steps of the warm-up, and the part of all steps over which the rate falls to zero at the end."""
MATRICES = {"*qkv.weight": 3, "*out.weight": 1, "*up.weight": 1, "*down.weight": 1}
CLIP = 3.0
AVERAGED = 0.995
"""Of the average of the weights that a step keeps: what is validated, and used afterwards."""
EVERY = 50
"""Steps of which the mean loss is a row of the metrics."""


def rate(step: int, steps: int) -> float:
    """Factor of the learning rate at a step."""
    return min((step + 1) / WARMUP, (steps - step) / (DECAY * steps), 1.0)


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
        self.step, self.history = 0, list[dict[str, float]]()
        self.path: Path = arguments.output / CHECKPOINT
        if self.path.exists():
            self._resume()

    def _resume(self) -> None:
        saved = load_checkpoint(self.path, "delete it to begin anew")
        self.network.load_state_dict(saved["network"])
        self.average.load_state_dict(saved["average"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.history = saved["step"], saved["history"]

    def save(self) -> None:
        """Write checkpoint and metrics."""
        state: dict[str, Any] = {
            "options": asdict(self.network.options),
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
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
        recent = list[float]()
        while self.step < arguments.steps:
            recent.append(self._step(tasks))
            self.step += 1
            if self.step % EVERY == 0:
                row = {"step": self.step, "loss": sum(recent) / len(recent)}
                each = (time.monotonic() - began) / len(recent)
                print(f"{row['step']:6d}  loss {row['loss']:.4f}  {each:.3f} s a step", flush=True)
                self.history.append(row)
                recent, began = [], time.monotonic()
            if self.step % arguments.validate_every == 0:
                self._validate()
                began = time.monotonic()
            is_last = self.step == arguments.steps
            if is_last or time.monotonic() - saved > 60 * arguments.checkpoint_minutes:
                self.save()
                saved = time.monotonic()

    def _step(self, tasks: PriorStream) -> float:
        factor = rate(self.step, self.arguments.steps)
        for group, base in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = base * factor
        task = prepared(tasks.batch(self.step), self.regressions)
        self.optimizer.zero_grad()
        loss = losses([*task.fixed, learned(self.network, task)], task).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP, error_if_nonfinite=True)
        self.optimizer.step()
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.network.parameters(), strict=True)
            for mean, parameter in pairs:
                mean.lerp_(parameter, max(1 - AVERAGED, 1 / (self.step + 1)))
        return float(loss.detach())

    def _validate(self) -> None:
        found = validated(self.average, self.regressions, self.arguments)
        row = {"step": self.step, **found}
        self.history.append(row)
        print(f"{self.step:6d}  " + "  ".join(f"{k} {v:.4f}" for k, v in found.items()), flush=True)


@torch.no_grad()
def validated(
    network: LearnedFeatures, regressions: RidgeRegressions, arguments: argparse.Namespace
) -> dict[str, float]:
    """Mean log-loss over fixed tasks: of fixed features, and of those and learned ones."""
    tasks = stream(0, Stage.VALIDATE, arguments.tokens)
    fixed, both = list[torch.Tensor](), list[torch.Tensor]()
    for index in range(arguments.validation_batches):
        task = prepared(tasks.batch(index), regressions)
        fixed.append(losses(task.fixed, task))
        both.append(losses([*task.fixed, learned(network, task)], task))
    difference = torch.cat(both) - torch.cat(fixed)
    return {
        "fixed": float(torch.cat(fixed).mean()),
        "with_learned": float(torch.cat(both).mean()),
        "difference": float(difference.mean()),
        "standard_error": float(difference.std() / len(difference) ** 0.5),
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--tokens", type=int, default=8192, help="cells a step")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--adamw-lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate-every", type=int, default=1000)
    parser.add_argument("--validation-batches", type=int, default=40)
    parser.add_argument("--checkpoint-minutes", type=float, default=5.0)
    parser.add_argument("--output", type=Path, default=Path("runs/solved_head"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Train; stopped, the same command goes on."""
    arguments = parse(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    Run(arguments).train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
