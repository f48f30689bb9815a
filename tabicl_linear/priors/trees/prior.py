"""The tree prior: labels given by random trees, on columns of mixed kinds."""

import numpy as np
import torch

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import classes, draws
from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.trees.columns import draw_columns
from tabicl_linear.priors.trees.hyperparameters import (
    draw_column_parameters,
    draw_target_parameters,
)
from tabicl_linear.priors.trees.target import draw_classes
from tabicl_linear.types import Bool, Float, Int, Tensor

LARGEST_SHARE = 0.98
MAX_CODES = 2**24
"""Number of category codes that float32, the dtype of all columns, can tell apart."""
MAX_ROUNDS = 1000
Parts = tuple[Float[Tensor, "b m n"], Int[Tensor, "b n"], Bool[Tensor, "b m"]]


class TreePrior(Prior):
    """Draws tasks whose labels are axis-aligned, local functions of the columns.

    The target is a sum of 1 to 64 random trees of depth 2 to 8, on a random subset of the columns,
    in some tasks plus a linear function or a small network; classes are quantiles of one output
    or the largest of several, with and without noise. Columns are normal, uniform, heavy-tailed,
    skewed, ordinal or nominal, and depend on each other through factors, a causal chain or
    clusters. Nominal columns hold codes whose order has no meaning; trees send random subsets of
    their categories to the left. Other columns are z-scores over all rows, clipped to +-100. No
    cell is missing. `docs/prior.md` lists every distribution.

    A draw is kept if it has at least two classes and the largest has at most 98 % of the rows.

    Args:
        max_categories: Maximum number of categories of a nominal column.
    """

    def __init__(self, max_categories: int = 256) -> None:
        if not 2 <= max_categories <= MAX_CODES:
            raise ConfigError(f"max_categories={max_categories}: use 2 to {MAX_CODES}.")
        self.max_categories = max_categories

    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: If no task can have the shape, or almost no draw has two classes.
        """
        shape.validate()
        rng = draws.numpy_generator(generator)
        with torch.no_grad(), torch.autocast(generator.device.type, enabled=False):
            x, y, categorical = self._draw_kept(shape, rng, generator)
            y = classes.rotate_classes(classes.reindex_classes(y, shape.num_classes), generator)
            tasks = Tasks(x.transpose(1, 2).contiguous(), y, categorical)
            return classes.cover_classes(tasks, shape.num_context, shape.num_classes, generator)

    def _draw_kept(
        self, shape: TaskShape, rng: np.random.Generator, generator: torch.Generator
    ) -> Parts:
        """Draw until every task of the batch is kept."""
        rounds: list[Parts] = []
        missing = shape.batch_size
        most = min(LARGEST_SHARE * shape.num_rows, shape.num_rows - 1)
        for _ in range(MAX_ROUNDS):
            x, y, categorical = self._draw(shape, missing, rng, generator)
            largest = classes.count_classes(y, shape.num_classes).amax(1)
            index = (largest <= most).nonzero().squeeze(1)
            rounds.append((x[index], y[index], categorical[index]))
            missing -= len(index)
            if not missing:
                x, y, categorical = (torch.cat(parts) for parts in zip(*rounds, strict=True))
                return x, y, categorical
        raise DataError(
            f"num_rows={shape.num_rows} with num_classes={shape.num_classes}: hardly any draw has "
            "two classes; raise num_rows."
        )

    def _draw(
        self, shape: TaskShape, count: int, rng: np.random.Generator, generator: torch.Generator
    ) -> Parts:
        """Draw columns, class ids and flags of nominal columns for `count` tasks."""
        m = shape.num_features
        target = draw_target_parameters(rng, count, m, shape.num_classes)
        columns = draw_column_parameters(rng, count, m, self.max_categories)
        x, nominal = draw_columns(columns, shape.num_rows, generator)
        y = draw_classes(x, nominal, target, rng, generator)
        x.view(count * m, -1).index_copy_(0, nominal.column, nominal.codes.to(x.dtype))
        categorical = torch.as_tensor(columns.num_categories > 0, device=x.device)
        return x, y, categorical
