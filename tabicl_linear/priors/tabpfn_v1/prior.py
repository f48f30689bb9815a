"""The TabPFN v1 prior: tables taken from random networks, as in the authors' code."""

from functools import partial
from typing import Literal

import numpy as np
import torch

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import classes, draws
from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.bins import count_below
from tabicl_linear.priors.keeping import Drawn, covered, until_kept
from tabicl_linear.priors.tabpfn_v1 import columns
from tabicl_linear.priors.tabpfn_v1.categorical import categorise_
from tabicl_linear.priors.tabpfn_v1.compatibility import draw_splits, is_compatible
from tabicl_linear.priors.tabpfn_v1.hyperparameters import (
    NetworkParameters,
    TargetParameters,
    draw_column_parameters,
    draw_network_parameters,
    draw_target_parameters,
)
from tabicl_linear.priors.tabpfn_v1.mlp import draw_networks
from tabicl_linear.types import Float, Int, Tensor


class TabPFNv1Prior(Prior):
    """Draws tasks from the MLP / structural-causal prior of TabPFN v1, in the paper's settings.

    Columns and target are units of a random network (causal), or its inputs and output; the target
    is cut into classes, columns may become categories, ranks, or lose cells. `docs/prior.md` lists
    every distribution.

    A draw is kept if it is compatible at the prior's own random split (10 % to 90 % of the rows):
    one of 10 random row orders must have the same classes, at least two, on both sides. The split
    that training uses is another one: for it, rows are only reordered so that every class is in the
    context. So the distribution of tables does not depend on the training split.

    Args:
        sharing: "dataset" gives every task its own hyper-parameters and network. "batch" is the
            authors' way: the tasks of a batch share hyper-parameters, network, number of classes
            and which columns are categorical, and differ in inputs, noise, chosen units, and the
            order of class ids; the whole batch is drawn again until all its tasks are kept.
    """

    fewest_rows = 4

    def __init__(self, sharing: Literal["dataset", "batch"] = "dataset") -> None:
        if sharing not in ("dataset", "batch"):
            raise ConfigError(f'sharing={sharing!r}: use "dataset" or "batch".')
        self.sharing = sharing

    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: If no task can have the shape, or almost no draw is compatible at it.
        """
        shape.validate()
        if shape.num_rows < self.fewest_rows:
            raise DataError(
                f"num_rows={shape.num_rows}: this prior needs at least {self.fewest_rows} rows."
            )
        rng = draws.numpy_generator(generator)
        with torch.no_grad(), torch.autocast(generator.device.type, enabled=False):
            x, y = until_kept(
                partial(self._draw_kept, shape, rng, generator),
                shape,
                "the same classes on both sides of a split; raise num_rows or lower num_classes",
            )
            x, categorical = self._process_columns(x, rng, generator)
            return covered(Drawn(x, y, categorical), shape, generator)

    def _draw_kept(
        self, shape: TaskShape, rng: np.random.Generator, generator: torch.Generator, count: int
    ) -> tuple[Float[Tensor, "b m n"], Int[Tensor, "b n"]]:
        """Draw networks and classes for `count` tasks and return those that are compatible.

        Returns:
            Values of the columns' nodes, and class ids, of which some may not occur.
        """
        shared = self.sharing == "batch"
        n, m = shape.num_rows, shape.num_features
        num_nets = 1 if shared else count
        nets = draw_network_parameters(rng, num_nets, m)
        targets = draw_target_parameters(rng, num_nets, shape.num_classes)
        splits = draw_splits(rng, num_nets, n)
        if shared:
            nets = NetworkParameters(*(field.repeat(count) for field in nets))
            targets = TargetParameters(*(field.repeat(count) for field in targets))
            splits = splits.repeat(count)
        nodes = draw_networks(nets, m, num_rows=n, shared=shared, rng=rng, generator=generator)
        y = _assign_classes(nodes[:, 0], targets, shared=shared, generator=generator)
        counts = classes.count_classes(y, shape.num_classes)
        counts *= nodes.amax((1, 2)).isnan().logical_not_().unsqueeze(1)
        tasks = np.flatnonzero(is_compatible(rng, counts.cpu().numpy(), splits))
        if shared and tasks.size < count:
            tasks = tasks[:0]  # a batch that shares its network is kept as a whole
        index = torch.as_tensor(tasks, device=generator.device)
        return nodes[:, 1:][index], y[index]

    def _process_columns(
        self, x: Float[Tensor, "b m n"], rng: np.random.Generator, generator: torch.Generator
    ) -> tuple[Float[Tensor, "b m n"], Tensor]:
        """Drop cells, cut categories, rank or pull in outliers, and standardise over all rows."""
        b, m, _ = x.shape
        shared = self.sharing == "batch"
        p = draw_column_parameters(rng, 1 if shared else b, m)
        missing, to_ranks, num_categories = (
            np.repeat(field, b, 0) if shared else field for field in p
        )
        device = x.device
        if missing.any():
            rate = torch.as_tensor(missing, dtype=torch.float32, device=device)
            x = columns.drop_cells_(x, rate, generator)
        x = categorise_(x, num_categories, generator=generator, shared=shared)
        flat = x.flatten(0, 1)
        for ranked, change in ((True, columns.to_ranks), (False, columns.pull_in_outliers)):
            index = np.flatnonzero(np.repeat(to_ranks == ranked, m))
            if index.size:
                chosen = torch.as_tensor(index, device=device)
                flat.index_copy_(0, chosen, change(flat[chosen]))
        is_categorical = torch.as_tensor(num_categories > 0, device=device)
        return columns.standardise(flat).view_as(x), is_categorical


def _assign_classes(
    target: Float[Tensor, "b n"],
    p: TargetParameters,
    *,
    shared: bool,
    generator: torch.Generator,
) -> Int[Tensor, "b n"]:
    """Cut standardised targets at the targets of random rows or at normal numbers; shuffle ids."""
    b, n = target.shape
    target = columns.standardise(target.contiguous())
    size = (1 if shared else b, int(p.num_classes.max()) - 1)
    rows = torch.randint(n, size, generator=generator, device=target.device).expand(b, -1)
    levels = draws.normal(*size, generator=generator).expand(b, -1)
    by_rank = torch.as_tensor(p.by_rank, device=target.device).unsqueeze(1)
    boundaries = torch.where(by_rank, target.gather(1, rows), levels)
    ids = count_below(target, classes.pad_boundaries(boundaries, p.num_classes))
    return classes.randomise_ids(ids, p.num_classes, p.ordered_probability, generator=generator)
