"""An imitation of the authors' TabPFN v1 prior: `nn.Sequential` networks, dataset by dataset.

It draws hyper-parameters by our code, so that both compute networks of the same sizes, follows the
known steps of the authors' code, and ranks by sorting as that code does. It does less work than the
real prior: all causes are normal, classes are always cut at values of rows, and columns are scaled
by our functions.
"""

import numpy as np
import torch
from torch import nn

from tabicl_linear.priors import TaskShape
from tabicl_linear.priors.tabpfn_v1.columns import pull_in_outliers, standardise
from tabicl_linear.priors.tabpfn_v1.hyperparameters import (
    ACTIVATIONS,
    NetworkParameters,
    draw_column_parameters,
    draw_network_parameters,
    draw_target_parameters,
)
from tabicl_linear.priors.tabpfn_v1.nodes import draw_nodes
from tabicl_linear.types import Float, Int, Tensor

ACTIVATION_CLASSES = {"tanh": nn.Tanh, "identity": nn.Identity, "relu": nn.ReLU}


class _Noise(nn.Module):
    def __init__(self, std: Tensor) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Float[Tensor, "n e"]) -> Float[Tensor, "n e"]:
        return x + torch.normal(torch.zeros_like(x), self.std.expand_as(x))


@torch.no_grad()
def imitate(shape: TaskShape, share: int, rng: np.random.Generator, device: str) -> int:
    """Draw `shape.batch_size` datasets; return how many were drawn, with rejected ones.

    Groups of `share` datasets have hyper-parameters, network and categorical columns in common, and
    are redrawn together.
    """
    num_tasks = num_draws = 0
    with torch.device(device):
        while num_tasks < shape.batch_size:
            num_draws += share
            nodes = _draw_group(shape, share, rng)
            target = draw_target_parameters(rng, 1, shape.num_classes)
            y = _cut(standardise(nodes[:, 0]), int(target.num_classes[0]))
            x = _process_columns(nodes[:, 1:], rng)
            if not x.isinf().any() and all(_is_kept(labels) for labels in y):
                num_tasks += share
    return num_draws


def _draw_group(shape: TaskShape, share: int, rng: np.random.Generator) -> Float[Tensor, "b s n"]:
    """Draw target (slot 0) and columns of `share` datasets of one network, before processing."""
    p = draw_network_parameters(rng, 1, shape.num_features)
    together = NetworkParameters(*(field.repeat(share) for field in p))
    nodes = draw_nodes(rng, together, shape.num_features)
    network = _build_network(p, rng)
    datasets = []
    for layers, units in zip(nodes.layer, nodes.unit, strict=True):
        outputs = [torch.randn(shape.num_rows, int(p.num_causes[0]))]
        for layer in network:
            outputs.append(layer(outputs[-1]))
        pairs = zip(layers, units, strict=True)
        picked = [outputs[0 if layer < 0 else layer + 2][:, unit] for layer, unit in pairs]
        datasets.append(torch.stack(picked))
    return torch.stack(datasets)


def _build_network(p: NetworkParameters, rng: np.random.Generator) -> nn.Sequential:
    hidden = int(p.hidden_dim[0])
    widths = [hidden] * int(p.num_layers[0] - 1) + ([] if p.is_causal[0] else [1])
    layers: list[nn.Module] = [nn.Linear(int(p.num_causes[0]), hidden)]
    for width in widths:
        std = torch.full((1, width), float(p.noise_std[0]))
        noise = _Noise(torch.normal(0.0, std).abs() if p.unit_noise[0] else std)
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


def _cut(values: Float[Tensor, "b n"], count: int) -> Int[Tensor, "b n"]:
    """Cut one column of each dataset at the values of random rows and permute the ids."""
    boundaries = values[:, torch.randint(values.shape[1], (count - 1,))]
    ids = (values.unsqueeze(-1) > boundaries.unsqueeze(1)).sum(-1)
    return torch.stack([torch.randperm(count)[row] for row in ids])


def _process_columns(x: Float[Tensor, "b m n"], rng: np.random.Generator) -> Float[Tensor, "b m n"]:
    p = draw_column_parameters(rng, 1, x.shape[1])
    for column, count in enumerate(p.num_categories[0]):
        if count:
            x[:, column] = _cut(x[:, column], int(count)).float()
    columns = x.flatten(0, 1)
    columns = _sorted_ranks(columns) if p.to_ranks[0] else pull_in_outliers(columns)
    return standardise(columns).view_as(x)


def _sorted_ranks(x: Float[Tensor, "c n"]) -> Float[Tensor, "c n"]:
    """The number of values in its column at most as large as each value."""
    n = x.shape[-1]
    values, index = x.sort(-1)
    # Ties share the position of their last value, which is the next end of a run of equal values.
    ends = torch.arange(1, n + 1, dtype=x.dtype).expand(x.shape).clone()
    ends[..., :-1].masked_fill_(values[..., 1:] == values[..., :-1], n)
    return torch.empty_like(x).scatter_(-1, index, ends.flip(-1).cummin(-1).values.flip(-1))


def _is_kept(y: Int[Tensor, "n"]) -> bool:
    """Whether one of 10 random orders has the same classes on both sides of a split."""
    split = int(torch.randint(len(y) // 10, len(y) * 9 // 10, ()))
    for _ in range(10):
        y = y[torch.randperm(len(y))]
        first, second = y[:split].unique(), y[split:].unique()
        if len(first) > 1 and torch.equal(first, second):
            return True
    return False
