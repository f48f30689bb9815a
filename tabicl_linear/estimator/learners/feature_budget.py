"""Whether memory has room for as many features as are asked for."""

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.members.memory import free_bytes
from tabicl_linear.ridge_inputs import RidgeOptions

DOUBLE, FLOAT = 8, 4
HELD = 2
"""Copies of the features of all rows, or of their sums of products, that a solution holds."""


def check_budget(options: RidgeOptions, *, num_columns: int, num_rows: int) -> None:
    """Refuse features for which even the least that a fit holds at a time is more than is free.

    Raises:
        ConfigError: There are too many.
    """
    leaves = options.num_trees * 2**options.tree_depth
    projected = options.num_tanh + options.num_cosine
    num_features = projected + leaves
    drawn = FLOAT * projected * num_columns
    needed = drawn + HELD * DOUBLE * num_features * min(num_features, num_rows)
    free = free_bytes(torch.device("cpu"))
    if free is None or needed <= free:
        return
    default = RidgeOptions()
    raise ConfigError(
        f"num_tanh={options.num_tanh:,}, num_cosine={options.num_cosine:,} and "
        f"num_trees={options.num_trees:,} of depth {options.tree_depth} make {num_features:,} "
        f"features, for which {num_rows:,} rows take at least {needed / 2**30:,.1f} GiB, and "
        f"{free / 2**30:,.1f} GiB are free: give fewer; the default is num_tanh="
        f"{default.num_tanh}, num_cosine={default.num_cosine}, num_trees={default.num_trees}."
    )
