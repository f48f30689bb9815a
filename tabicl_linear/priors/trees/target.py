"""Targets of the tree prior: outputs of trees and smooth functions, turned into classes."""

import numpy as np
import torch

from tabicl_linear.priors import classes, draws
from tabicl_linear.priors.bins import argsort, count_below
from tabicl_linear.priors.keeping import flip_classes
from tabicl_linear.priors.trees.columns import Nominal
from tabicl_linear.priors.trees.forest import Columns, Trees, sum_of_trees
from tabicl_linear.priors.trees.hyperparameters import TargetParameters
from tabicl_linear.types import Float, Int, Tensor

NUM_VIEWS = 3
HIDDEN = 16
SCALE_FLOOR = 1e-6
TREE_JITTER = 2
"""A tree has the depth of its task or up to `TREE_JITTER - 1` levels less."""


def draw_classes(
    x: Float[Tensor, "b m n"],
    nominal: Nominal,
    p: TargetParameters,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Int[Tensor, "b n"]:
    """Draw each task's target and return class ids `0..num_classes-1`; some may not occur."""
    b, _, n = x.shape
    columns = draw_views(x, nominal, p, generator)
    sums = sum_of_trees(columns, draw_trees(p, rng), generator)
    y = torch.empty(b, n, dtype=torch.int64, device=x.device)
    for compared, assign in ((False, cut), (True, compare)):
        tasks = np.flatnonzero(p.compared == compared)
        if tasks.size:
            index = torch.as_tensor(tasks, device=x.device)
            own = p.select(tasks)
            total = sums[max(sums) if compared else 1][index]
            outputs = _finish(total, columns.select(index), own, generator)
            y[index] = assign(outputs, own, rng, generator)
    if not p.flip_rate.any():
        return y
    return flip_classes(y, p.flip_rate, p.num_classes, generator)


def draw_views(
    x: Float[Tensor, "b m n"], nominal: Nominal, p: TargetParameters, generator: torch.Generator
) -> Columns:
    """Draw the weight of each column in splits, and the random scores of nominal columns."""
    b, m, n = x.shape
    device = x.device
    weights = draws.normal(b, m, generator=generator).exp_()
    place = argsort(draws.uniform(b, m, generator=generator))
    relevant = torch.as_tensor(p.num_relevant, device=device).unsqueeze(1)
    weights = weights.masked_fill_(place >= relevant, 0.0)
    slots = torch.arange(b * m, device=device).unsqueeze(1).expand(-1, NUM_VIEWS)
    share = x.new_tensor([1.0, *[0.0] * (NUM_VIEWS - 1)]).expand(b * m, -1)
    count = len(nominal.column)
    if not count:
        slots, share = slots[:, :1], share[:, :1]
        values = x.reshape(b * m, n)
    else:
        largest = int(nominal.num_categories.max())
        scores = draws.uniform(NUM_VIEWS, count, largest, generator=generator)
        codes = nominal.codes.expand(NUM_VIEWS, -1, -1)
        # As z-scores, for the smooth parts of targets.
        views = (scores.gather(2, codes) - 0.5).mul_(12**0.5).view(NUM_VIEWS * count, n)
        values = torch.cat([x.reshape(b * m, n), views])
        first = b * m + torch.arange(NUM_VIEWS * count, device=device).view(NUM_VIEWS, count).T
        slots = slots.clone().index_copy_(0, nominal.column, first)
        even = torch.full((count, NUM_VIEWS), 1 / NUM_VIEWS, device=device)
        share = share.clone().index_copy_(0, nominal.column, even)
    weights = weights.unsqueeze(2) * share.view(b, m, -1)
    return Columns(values, slots.reshape(b, -1), weights.flatten(1))


def _finish(
    sums: Float[Tensor, "b n o"], columns: Columns, p: TargetParameters, generator: torch.Generator
) -> Float[Tensor, "b n o"]:
    """Scale outputs to deviation 1, mix smooth parts into some of them, and add noise."""
    outputs = scaled(sums)
    mixed = np.flatnonzero(p.smooth_share)
    if mixed.size:
        index = torch.as_tensor(mixed, device=outputs.device)
        own = p.select(mixed)
        weight = _on_device(own.smooth_share, outputs)
        smooth = scaled(_smooth(columns.select(index), own, outputs.shape[2], generator))
        outputs[index] = (1 - weight) * outputs[index] + weight * smooth
    noisy = np.flatnonzero(p.noise_std)
    if noisy.size:
        index = torch.as_tensor(noisy, device=outputs.device)
        noise = draws.normal(noisy.size, *outputs.shape[1:], generator=generator)
        outputs.index_add_(0, index, noise.mul_(_on_device(p.noise_std[noisy], outputs)))
    return outputs


def draw_trees(p: TargetParameters, rng: np.random.Generator) -> Trees:
    """Draw the depths of all tasks' trees and sort the trees in the order of `Trees`."""
    task = np.repeat(np.arange(len(p.num_trees)), p.num_trees)
    number = np.arange(len(task)) - np.repeat(p.num_trees.cumsum() - p.num_trees, p.num_trees)
    depth = p.depth[task] - rng.integers(TREE_JITTER, size=len(task))
    num_outputs = np.where(p.compared, p.num_classes[p.compared].max(initial=2), 1)[task]
    order = np.lexsort((task, num_outputs, -depth))
    task = task[order]
    return Trees(
        task=task,
        depth=depth[order],
        num_outputs=num_outputs[order],
        scale=p.tree_scale[task] ** number[order],
        level_scale=p.level_scale[task],
        focus=p.focus[task],
        spread=p.spread[task],
    )


def _smooth(
    columns: Columns, p: TargetParameters, num_outputs: int, generator: torch.Generator
) -> Float[Tensor, "b n o"]:
    """Return a linear function of the columns, or a small tanh network."""
    b, s = columns.slots.shape
    x = columns.values[columns.slots].transpose(1, 2).clamp(-5, 5)
    mask = (columns.weights > 0).unsqueeze(2)
    first = draws.normal(b, s, HIDDEN, generator=generator) * mask
    first /= torch.linalg.vector_norm(first, dim=1, keepdim=True).clamp_(min=SCALE_FLOOR)
    bias = draws.normal(b, 1, HIDDEN, generator=generator)
    second = draws.normal(b, HIDDEN, num_outputs, generator=generator)
    hidden = torch.baddbmm(bias, x, first)
    is_linear = torch.as_tensor(p.smooth_linear, device=x.device).view(b, 1, 1)
    return torch.bmm(torch.where(is_linear, hidden, (2 * hidden).tanh()), second)


def scaled(outputs: Float[Tensor, "b n o"]) -> Float[Tensor, "b n o"]:
    """Centre each output over the rows and scale those of a task to a common deviation of 1."""
    outputs = outputs - outputs.mean(1, keepdim=True)
    square = outputs.square().mean((1, 2), keepdim=True)
    return outputs.div_(square.sqrt() + SCALE_FLOOR)


def cut(
    outputs: Float[Tensor, "b n 1"],
    p: TargetParameters,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Int[Tensor, "b n"]:
    """Cut one output at its quantiles, so that the class shares are Dirichlet numbers."""
    target = outputs.squeeze(2)
    b, n = target.shape
    most = int(p.num_classes.max())
    is_class = np.arange(most) < p.num_classes[:, None]
    shares = rng.gamma(np.repeat(p.concentration[:, None], most, 1)) * is_class
    levels = shares.cumsum(1) / shares.sum(1, keepdims=True)
    place = np.minimum((levels[:, :-1] * n).astype(np.int64), n - 1)
    row = argsort(target).gather(1, torch.as_tensor(place, device=target.device))
    boundaries = target.gather(1, row)
    ids = count_below(target, classes.pad_boundaries(boundaries, p.num_classes))
    ordered = rng.uniform(0, 0.5, b)
    return classes.randomise_ids(ids, p.num_classes, ordered, generator=generator)


def compare(
    outputs: Float[Tensor, "b n o"],
    p: TargetParameters,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Int[Tensor, "b n"]:
    """Return the class with the largest output plus offset in each row; offsets are per class."""
    b, _, most = outputs.shape
    offset = draws.normal(b, 1, most, generator=generator) / _on_device(p.concentration, outputs)
    unused = np.arange(most) >= p.num_classes[:, None]
    offset = offset.masked_fill_(
        torch.as_tensor(unused, device=offset.device).unsqueeze(1), -torch.inf
    )
    return (outputs + offset).argmax(2)


def _on_device(field: np.ndarray, like: Tensor) -> Float[Tensor, "b 1 1"]:
    return torch.as_tensor(field, dtype=like.dtype, device=like.device).view(-1, 1, 1)
