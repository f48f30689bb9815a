"""A learner in closed form: ridge regressions on random features, without a network."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics
from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.learners.interface import Learners, refuse_more_rows
from tabicl_linear.free_memory import free_bytes
from tabicl_linear.kernels.state import row_major
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions, RidgeState
from tabicl_linear.types import Bool, Float, Int, Tensor

MOST_MAPPED = 50
"""Maximum number of classes for which Newton's method fits the map from shares to logits. It takes
52 MB then, and 16 times that for twice as many classes. With more classes, logits are the shares
times one factor or, with chosen trees, the map is fitted without second derivatives."""

DOUBLE, FLOAT = 8, 4
"""Bytes of a number."""
HELD = 2
"""Copies held while solving, of the features of all rows or of the sums of their products."""


class ClosedFormState(NamedTuple):
    """Ridge regressions solved on a context, and the column statistics that standardise rows."""

    ridge: RidgeState
    statistics: ContextStatistics


class ClosedForm(nn.Module):
    """Predicts rows by ridge regressions that are solved on the context. Has no parameters."""

    is_causal = False
    check_extensible = refuse_more_rows

    def __init__(self, options: RidgeOptions, *, max_columns: int, num_classes: int) -> None:
        super().__init__()
        self.options, self.max_columns, self.num_classes = options, max_columns, num_classes
        self.regressions = RidgeRegressions(
            options, num_features=max_columns, num_classes=num_classes
        )

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return self.regressions.device

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
        rows_per_chunk: int,
        spill: Path | None = None,
        state: ClosedFormState | None = None,
    ) -> ClosedFormState:
        """Solve the regressions on labelled rows; see `ContextLearner.fit`.

        `spill` is not needed: memory does not grow with the number of rows.
        """
        assert state is None, "rows for regressions to which none can be added"
        statistics = context_statistics(
            x, y, categorical, num_features=None, rows_per_chunk=rows_per_chunk
        )
        context = self.regressions.open(x, y, statistics, rows_per_chunk)
        return row_major(ClosedFormState(context.state, statistics))

    def predict(self, state: ClosedFormState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
        return self.regressions.query(x, state.ridge, state.statistics).logits()


@dataclass(frozen=True)
class ClosedForms(Learners):
    """Learners in closed form for tables of any number of classes."""

    options: RidgeOptions
    max_columns: int

    def for_table(self, num_classes: int, num_rows: int, *, grows: bool = False) -> ClosedForm:
        """The learner of a table. No rows can be added to its states, even with `grows`."""
        check_budget(self.options, num_columns=self.max_columns, num_rows=num_rows)
        options = self.options
        if num_classes > MOST_MAPPED:
            options = replace(options, calibration="confidence")
        return ClosedForm(options, max_columns=self.max_columns, num_classes=num_classes)


def check_budget(options: RidgeOptions, *, num_columns: int, num_rows: int) -> None:
    """Raise `ConfigError` if the least memory that a fit with these options takes is not free."""
    leaves = options.num_trees * 2**options.tree_depth
    num_projections = options.num_tanh + options.num_cosine
    num_features = num_projections + leaves
    projection_bytes = FLOAT * num_projections * num_columns
    least_bytes = projection_bytes + HELD * DOUBLE * num_features * min(num_features, num_rows)
    free = free_bytes(torch.device("cpu"))
    if free is None or least_bytes <= free:
        return
    default = RidgeOptions()
    raise ConfigError(
        f"num_tanh={options.num_tanh:,}, num_cosine={options.num_cosine:,} and "
        f"num_trees={options.num_trees:,} of depth {options.tree_depth} make {num_features:,} "
        f"features, for which {num_rows:,} rows take at least {least_bytes / 2**20:,.1f} MiB, and "
        f"{free / 2**20:,.1f} MiB are free: give fewer (the default is num_tanh="
        f"{default.num_tanh}, num_cosine={default.num_cosine}, num_trees={default.num_trees}), or "
        "close other programs."
    )
