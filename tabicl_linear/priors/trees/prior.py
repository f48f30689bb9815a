"""The tree prior: labels given by random trees, on columns of mixed kinds."""

from functools import partial

import numpy as np
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.keeping import Drawn, kept_tasks
from tabicl_linear.priors.trees.columns import draw_columns
from tabicl_linear.priors.trees.hyperparameters import (
    draw_column_parameters,
    draw_target_parameters,
)
from tabicl_linear.priors.trees.target import draw_classes

MAX_CODES = 2**24
"""Number of category codes that float32, the dtype of all columns, can tell apart."""


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
        return kept_tasks(partial(self._draw, shape, generator), shape, generator)

    def _draw(
        self, shape: TaskShape, generator: torch.Generator, count: int, rng: np.random.Generator
    ) -> Drawn:
        """Draw columns, class ids and flags of nominal columns for `count` tasks."""
        m = shape.num_features
        target = draw_target_parameters(rng, count, m, shape.num_classes)
        columns = draw_column_parameters(rng, count, m, self.max_categories)
        x, nominal = draw_columns(columns, shape.num_rows, generator)
        y = draw_classes(x, nominal, target, rng, generator)
        x.view(count * m, -1).index_copy_(0, nominal.column, nominal.codes.to(x.dtype))
        categorical = torch.as_tensor(columns.num_categories > 0, device=x.device)
        return Drawn(x, y, categorical)
