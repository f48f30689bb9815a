"""A gate: whether learned features count, by what rows left out say of both arms.

    python -m experiments.solved_head.gate --run runs/solved_head --tasks 120

Fits both pairs of arms to synthetic tasks alone, and a linear function of a few numbers to what
learned features take from the log-loss of the queries. An arm with learned features is used where
the function says that it gains. The gates are in `gate.json` of the run.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import log_softmax

from experiments.solved_head.learners import FIXED, WITH_LEARNED, Arms, trained
from experiments.solved_head.network import LearnedFeatures
from experiments.solved_head.tasks import stream
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.data.stream import Stage
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import MAX_COLUMNS
from tabicl_linear.files import written_whole
from tabicl_linear.priors.rows import LogUniformRows

GATES = "gate.json"
ROWS = LogUniformRows(256, 4096)
PENALTY = 10.0
"""Of squared weights of standardised numbers, where each task counts one."""
Floats = npt.NDArray[np.float64]


def described(without: Floats, having: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """What a gate sees: rows left out, as logits of both arms.

    Returns:
        By how much the log-loss falls, that in its standard errors, the log-loss without learned
        features, the logarithm of rows, classes, and mean confidence.
    """
    at = np.arange(len(labels)), labels
    scores = log_softmax(without, axis=1)
    gained = log_softmax(having, axis=1)[at] - scores[at]
    error = gained.std() / len(labels) ** 0.5 + 1e-9
    size = np.log(len(labels)), float(without.shape[1]), np.exp(scores.max(1)).mean()
    return np.array([gained.mean(), gained.mean() / error, -scores[at].mean(), *size])


@dataclass(frozen=True)
class Gate:
    """A linear function of what is described.

    Attributes:
        mean, scale: By which numbers are standardised.
        weights: Of these numbers.
        offset: What is added.
    """

    mean: list[float]
    scale: list[float]
    weights: list[float]
    offset: float

    @classmethod
    def fitted(cls, seen: Floats, gains: Floats) -> "Gate":
        """Ridge regression of gains on what is described of each task."""
        mean, scale = seen.mean(0), seen.std(0) + 1e-9
        z = (seen - mean) / scale
        system = z.T @ z + PENALTY * np.eye(z.shape[1])
        weights = np.linalg.solve(system, z.T @ (gains - gains.mean()))
        return cls(mean.tolist(), scale.tolist(), weights.tolist(), float(gains.mean()))

    def gain(self, seen: Floats) -> float:
        """By how much it expects the log-loss of queries to fall."""
        z = (seen - np.array(self.mean)) / np.array(self.scale)
        return float(z @ np.array(self.weights)) + self.offset


def example(network: LearnedFeatures, batch: TaskBatch) -> list[tuple[Floats, float]]:
    """What is described of the first task of a batch, and what is gained, for each pair of arms."""
    c = batch.num_context
    x, y, categorical = batch.x[:1], batch.y[:1], batch.categorical[:1]
    num_classes = int(y.max()) + 1
    logits, honest = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for features in (None, network):
        arms = Arms(features, num_classes, MAX_COLUMNS)
        fitted = arms.fit(x[:, :c], y[:, :c], categorical=categorical, rows_per_chunk=1024)
        for arm, of_arm in fitted.states[0].honest.items():
            arms.arm = arm
            logits[arm] = arms.predict(fitted, x[:, c:])[0].double()
            honest[arm], labels = of_arm.logits.double(), of_arm.labels
    examples = []
    for pair in zip(FIXED, WITH_LEARNED, strict=True):
        losses = [torch.nn.functional.cross_entropy(logits[arm], y[0, c:]) for arm in pair]
        seen = described(honest[pair[0]].numpy(), honest[pair[1]].numpy(), labels.numpy())
        examples.append((seen, float(losses[0] - losses[1])))
    return examples


def about(gate: Gate, seen: Floats, gains: Floats) -> str:
    """Mean gains of all tasks: always, where rows left out gain, and where the gate opens."""
    opened = np.array([gate.gain(row) > 0 for row in seen])
    of_rules = {"always": gains, "left_out": gains * (seen[:, 0] > 0), "gate": gains * opened}
    parts = [f"{k} {v.mean():+.4f} +- {v.std() / len(v) ** 0.5:.4f}" for k, v in of_rules.items()]
    return "  ".join([*parts, f"open {opened.mean():.2f}"])


def main(argv: Sequence[str] | None = None) -> int:
    """Fit the gates on two thirds of the tasks, say what they do on the others, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of a training")
    parser.add_argument("--tasks", type=int, default=120)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    network = trained(arguments.run / "last.ckpt")
    tasks = stream(0, Stage.TEST, ROWS.max_rows, rows=ROWS)
    with torch.inference_mode():
        examples = [example(network, tasks.batch(index)) for index in range(arguments.tasks)]
    gates = {}
    cut = 2 * len(examples) // 3
    for name, pairs in zip(WITH_LEARNED, zip(*examples, strict=True), strict=True):
        seen, gains = np.stack([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
        gates[name] = Gate.fitted(seen[:cut], gains[:cut])
        print(f"{name}: {about(gates[name], seen[cut:], gains[cut:])}", flush=True)
    with written_whole(arguments.run / GATES) as partial:
        partial.write_text(json.dumps({name: asdict(gate) for name, gate in gates.items()}))
    return 0


def read_gates(folder: Path) -> dict[str, Gate]:
    """The gates of a run, by arm; none where there are none."""
    path = folder / GATES
    if not path.exists():
        return {}
    return {name: Gate(**fields) for name, fields in json.loads(path.read_text()).items()}


if __name__ == "__main__":
    sys.exit(main())
