"""The TabPFN v1 prior one dataset at a time, with one `nn.Sequential` each, as a rival.

It draws the same hyper-parameters as ours, so that both compute networks of the same sizes.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from tabicl_linear.priors import TaskShape
from tabicl_linear.priors.columns import pull_in_outliers, standardise
from tabicl_linear.priors.hyperparameters import (
    ACTIVATIONS,
    NetworkParameters,
    draw_column_parameters,
    draw_network_parameters,
    draw_target_parameters,
)
from tabicl_linear.priors.nodes import draw_nodes
from tabicl_linear.types import Float, Int, Tensor

ACTIVATION_CLASSES = {"tanh": nn.Tanh, "identity": nn.Identity, "relu": nn.ReLU}

Ranking = Callable[[Tensor], Tensor]
"""Ranks of the columns `[1 m n]` within themselves."""


class Noise(nn.Module):
    """Adds Gaussian noise."""

    def __init__(self, std: Tensor) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Float[Tensor, "n e"]) -> Float[Tensor, "n e"]:
        """`x` plus noise."""
        return x + torch.normal(torch.zeros_like(x), self.std.expand_as(x))


@torch.no_grad()
def one_by_one(shape: TaskShape, rank: Ranking, rng: np.random.Generator, device: str) -> int:
    """Draw `shape.batch_size` datasets one after the other; returns how many were tried."""
    kept = tried = 0
    with torch.device(device):
        while kept < shape.batch_size:
            tried += 1
            nodes = draw_one(shape, rng)
            target = draw_target_parameters(rng, 1, shape.num_classes)
            y = cut(standardise(nodes[0]), int(target.num_classes[0]))
            x = process_columns(nodes[None, 1:], rank, rng)
            if is_kept(y) and not x.isinf().any():
                kept += 1
    return tried


def pairwise_ranks(x: Float[Tensor, "1 m n"]) -> Float[Tensor, "1 m n"]:
    """Rank by comparing all pairs of rows, column by column, as the published TabPFN v1 code."""
    ranks = torch.zeros_like(x)
    for column in range(x.shape[1]):
        ranks[:, column] = (x[:, column, :, None] >= x[:, column, None]).sum(-1)
    return ranks


def draw_one(shape: TaskShape, rng: np.random.Generator) -> Float[Tensor, "m n"]:
    """Target and columns of one dataset before they are processed (all causes normal)."""
    p = draw_network_parameters(rng, 1, shape.num_features)
    nodes = draw_nodes(rng, p, shape.num_features)
    outputs = [torch.randn(shape.num_rows, int(p.num_causes[0]))]
    for layer in build_network(p, rng):
        outputs.append(layer(outputs[-1]))
    picked = [
        outputs[0 if layer < 0 else layer + 2][:, unit]
        for layer, unit in zip(nodes.layer[0], nodes.unit[0], strict=True)
    ]
    return torch.stack(picked)


def build_network(p: NetworkParameters, rng: np.random.Generator) -> nn.Sequential:
    """Build the network of one dataset, a module for each layer."""
    hidden = int(p.hidden_dim[0])
    widths = [hidden] * int(p.num_layers[0] - 1) + ([] if p.is_causal[0] else [1])
    layers: list[nn.Module] = [nn.Linear(int(p.num_causes[0]), hidden)]
    for width in widths:
        std = torch.full((1, width), float(p.noise_std[0]))
        noise = Noise(torch.normal(0.0, std).abs() if p.unit_noise[0] else std)
        activation = ACTIVATION_CLASSES[ACTIVATIONS[p.activation[0]]]()
        layers.append(nn.Sequential(activation, nn.Linear(hidden, width), noise))
    matrices = [w for w in nn.Sequential(*layers).parameters() if w.ndim == 2]
    for index, weight in enumerate(matrices):
        if p.block_wise[0]:
            _draw_blocks(weight, float(p.init_std[0]), rng)
        else:
            rate = float(p.dropout[0]) if index else 0.0
            nn.init.normal_(weight, std=float(p.init_std[0]) / (1 - rate**0.5))
            weight.mul_(torch.bernoulli(torch.full_like(weight, 1 - rate)))
    return nn.Sequential(*layers)


def _draw_blocks(weight: Tensor, std: float, rng: np.random.Generator) -> None:
    rows, columns = weight.shape
    blocks = int(rng.integers(1, np.ceil(min(rows, columns) ** 0.5), endpoint=True))
    h, w = rows // blocks, columns // blocks
    nn.init.zeros_(weight)
    for k in range(blocks):
        block = weight[h * k : h * (k + 1), w * k : w * (k + 1)]
        nn.init.normal_(block, std=std * (rows * columns / blocks / h / w) ** 0.5)


def cut(values: Float[Tensor, "n"], count: int) -> Int[Tensor, "n"]:
    """Cut one column at the values of random rows and permute the ids."""
    boundaries = values[torch.randint(len(values), (count - 1,))]
    ids = (values > boundaries.unsqueeze(1)).sum(0)
    return torch.randperm(count)[ids]


def process_columns(
    x: Float[Tensor, "1 m n"], rank: Ranking, rng: np.random.Generator
) -> Float[Tensor, "1 m n"]:
    """Process the columns of one dataset, category columns one after the other."""
    p = draw_column_parameters(rng, 1, x.shape[1])
    for column, count in enumerate(p.num_categories[0]):
        if count:
            x[0, column] = cut(x[0, column], int(count)).float()
    return standardise(rank(x) if p.to_ranks[0] else pull_in_outliers(x))


def is_kept(y: Int[Tensor, "n"]) -> bool:
    """Whether one of 10 random orders has the same classes on both sides of a split."""
    split = int(torch.randint(len(y) // 10, len(y) * 9 // 10, ()))
    for _ in range(10):
        y = y[torch.randperm(len(y))]
        first, second = y[:split].unique(), y[split:].unique()
        if len(first) > 1 and torch.equal(first, second):
            return True
    return False
