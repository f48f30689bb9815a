"""Times the TabPFN v1 prior against drawing one dataset at a time with one nn.Sequential each.

Prints datasets per second: medians over repeats of 8 datasets x 1000 rows x 20 features, the
contestants taking turns.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from tabicl_linear.priors import TabPFNv1Prior, TaskShape
from tabicl_linear.priors.columns import pull_in_outliers, standardise, to_ranks
from tabicl_linear.priors.hyperparameters import (
    ACTIVATIONS,
    NetworkParameters,
    draw_column_parameters,
    draw_network_parameters,
    draw_target_parameters,
)
from tabicl_linear.priors.nodes import draw_nodes

SHAPE = TaskShape(batch_size=8, num_rows=1000, num_context=500, num_features=20, num_classes=10)
ACTIVATION_CLASSES = {"tanh": nn.Tanh, "identity": nn.Identity, "relu": nn.ReLU}


class Noise(nn.Module):
    """Adds Gaussian noise."""

    def __init__(self, std: torch.Tensor) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` plus noise."""
        return x + torch.normal(torch.zeros_like(x), self.std.expand_as(x))


def build_network(p: NetworkParameters, rng: np.random.Generator) -> nn.Sequential:
    """Build the network of one dataset, a module for each layer."""
    hidden = int(p.hidden_dim[0])
    outputs = [hidden] * int(p.num_layers[0] - 1) + ([] if p.is_causal[0] else [1])
    layers: list[nn.Module] = [nn.Linear(int(p.num_causes[0]), hidden)]
    for out in outputs:
        std = torch.full((1, out), float(p.noise_std[0]))
        noise = Noise(torch.normal(0.0, std).abs() if p.unit_noise[0] else std)
        activation = ACTIVATION_CLASSES[ACTIVATIONS[p.activation[0]]]()
        layers.append(nn.Sequential(activation, nn.Linear(hidden, out), noise))
    for index, weight in enumerate(w for w in nn.Sequential(*layers).parameters() if w.ndim == 2):
        if p.block_wise[0]:
            rows, columns = weight.shape
            blocks = int(rng.integers(1, np.ceil(min(rows, columns) ** 0.5), endpoint=True))
            h, w = rows // blocks, columns // blocks
            nn.init.zeros_(weight)
            for k in range(blocks):
                block = weight[h * k : h * (k + 1), w * k : w * (k + 1)]
                nn.init.normal_(block, std=p.init_std[0] * (rows * columns / blocks / h / w) ** 0.5)
        else:
            rate = float(p.dropout[0]) if index else 0.0
            nn.init.normal_(weight, std=float(p.init_std[0]) / (1 - rate**0.5))
            weight *= torch.bernoulli(torch.full_like(weight, 1 - rate))
    return nn.Sequential(*layers)


def draw_one(rng: np.random.Generator) -> torch.Tensor:
    """Return the node values `[1 + m, n]` of one dataset (all causes normal)."""
    p = draw_network_parameters(rng, 1, SHAPE.num_features)
    nodes = draw_nodes(rng, p, SHAPE.num_features)
    network = build_network(p, rng)
    outputs = [torch.randn(SHAPE.num_rows, int(p.num_causes[0]))]
    for layer in network:
        outputs.append(layer(outputs[-1]))
    picked = [
        outputs[0 if layer < 0 else layer + 2][:, unit]
        for layer, unit in zip(nodes.layer[0], nodes.unit[0], strict=True)
    ]
    return torch.stack(picked)


def cut(values: torch.Tensor, count: int) -> torch.Tensor:
    """Cut one column at the values of random rows and permute the ids."""
    boundaries = values[torch.randint(len(values), (count - 1,))]
    ids = (values > boundaries.unsqueeze(1)).sum(0)
    return torch.randperm(count)[ids]


def pairwise_ranks(x: torch.Tensor) -> torch.Tensor:
    """Rank by comparing all pairs of rows, column by column, as the published TabPFN v1 code."""
    ranks = torch.zeros_like(x)
    for column in range(x.shape[1]):
        ranks[:, column] = (x[:, column, :, None] >= x[:, column, None]).sum(-1)
    return ranks


def process_columns(
    x: torch.Tensor, rank: Callable[[torch.Tensor], torch.Tensor], rng: np.random.Generator
) -> torch.Tensor:
    """Process the columns `[1 m n]` of one dataset, category columns one after the other."""
    p = draw_column_parameters(rng, 1, SHAPE.num_features)
    for column, count in enumerate(p.num_categories[0]):
        if count:
            x[0, column] = cut(x[0, column], int(count)).float()
    return standardise(rank(x) if p.to_ranks[0] else pull_in_outliers(x))


def is_kept(y: torch.Tensor) -> bool:
    """Return whether one of 10 random orders has the same classes on both sides of a split."""
    split = int(torch.randint(SHAPE.num_rows // 10, SHAPE.num_rows * 9 // 10, ()))
    for _ in range(10):
        y = y[torch.randperm(len(y))]
        first, second = y[:split].unique(), y[split:].unique()
        if len(first) > 1 and torch.equal(first, second):
            return True
    return False


def one_by_one(rank: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Draw a batch one dataset at a time."""
    rng = np.random.default_rng()
    kept = 0
    while kept < SHAPE.batch_size:
        nodes = draw_one(rng)
        target = draw_target_parameters(rng, 1, SHAPE.num_classes)
        y = cut(standardise(nodes[0]), int(target.num_classes[0]))
        x = process_columns(nodes[None, 1:], rank, rng)
        if is_kept(y) and not x.isinf().any():
            kept += 1


def main() -> None:
    """Time the contestants in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(0)
    priors = {name: TabPFNv1Prior(name) for name in ("dataset", "batch")}
    contestants: dict[str, Callable[[], object]] = {
        "one nn.Sequential a dataset, pairwise ranks (as published)": partial(
            one_by_one, pairwise_ranks
        ),
        "one nn.Sequential a dataset, ranks by sorting (ours)": partial(one_by_one, to_ranks),
    }
    for name, prior in priors.items():
        contestants[f"sharing={name}"] = partial(prior.sample_tasks, SHAPE, generator)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    with torch.no_grad():
        for _ in range(args.repeats):
            for name, draw in contestants.items():
                start = time.perf_counter()
                draw()
                seconds[name].append(time.perf_counter() - start)
    print("| drawn by | datasets/s (mean) | datasets/s (median batch) |\n|---|---|---|")
    for name, values in seconds.items():
        mean, median = SHAPE.batch_size / np.mean(values), SHAPE.batch_size / np.median(values)
        print(f"| {name} | {mean:.0f} | {median:.0f} |")


if __name__ == "__main__":
    main()
