"""A learner in closed form: ridge regressions on random features, without a network."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics
from tabicl_linear.estimator.learners.feature_budget import check_budget
from tabicl_linear.kernels.state import row_major
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions, RidgeState
from tabicl_linear.types import Bool, Float, Int, Tensor

MOST_MAPPED = 50
"""Classes whose logits are made of all shares by Newton's method, in 52 MB; for twice as many it
would take 16 times that. More have one factor, or with chosen trees are found without curvature."""


class ClosedFormState(NamedTuple):
    """The regressions solved on a context.

    Attributes:
        ridge: Solutions, which predict rows from their features.
        statistics: Column statistics, by which rows are standardised.
    """

    ridge: RidgeState
    statistics: ContextStatistics


class ClosedForm(nn.Module):
    """Predicts rows by ridge regressions that are solved on the context. Has no parameters.

    Args:
        options: Features and penalties.
        max_columns: Maximum number of columns of a table.
        num_classes: Number of classes of a table.
    """

    def __init__(self, options: RidgeOptions, *, max_columns: int, num_classes: int) -> None:
        super().__init__()
        self.max_columns = max_columns
        self.regressions = RidgeRegressions(
            options, num_features=max_columns, num_classes=num_classes
        )

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return self.regressions.device

    def arguments(self) -> dict[str, Any]:
        """The arguments that make an equal learner."""
        regressions = self.regressions
        return {
            "options": regressions.options,
            "max_columns": self.max_columns,
            "num_classes": regressions.num_classes,
        }

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"],
        rows_per_chunk: int,
        spill: Path | None = None,
    ) -> ClosedFormState:
        """Solve the regressions on labelled rows; see `ContextLearner.fit`.

        Nothing is spilled: memory does not grow with the rows.
        """
        statistics = context_statistics(
            x, y, categorical, num_features=None, rows_per_chunk=rows_per_chunk
        )
        context = self.regressions.open(x, y, statistics, rows_per_chunk)
        return row_major(ClosedFormState(context.state, statistics))

    def predict(self, state: ClosedFormState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
        return self.regressions.query(x, state.ridge, state.statistics).logits()


@dataclass(frozen=True)
class ClosedForms:
    """Learners in closed form for tables of any number of classes.

    Attributes:
        options: Features and penalties.
        max_columns: Maximum number of columns of a table.
    """

    options: RidgeOptions
    max_columns: int

    is_causal = takes_pieces = False
    # What comparing does was measured with trees alone.
    compares_columns = False

    def for_table(self, num_classes: int, num_rows: int, *, grows: bool = False) -> ClosedForm:
        """The learner for so many classes; no row can be added to its states.

        Raises:
            ConfigError: There is no room for as many features.
        """
        check_budget(self.options, num_columns=self.max_columns, num_rows=num_rows)
        options = self.options
        if num_classes > MOST_MAPPED:
            options = replace(options, calibration="confidence")
        return ClosedForm(options, max_columns=self.max_columns, num_classes=num_classes)
