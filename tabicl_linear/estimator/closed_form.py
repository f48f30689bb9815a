"""The closed form as a learner: ridge regressions on random features, and no network."""

from typing import NamedTuple

import torch
from torch import nn

from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions, RidgeState
from tabicl_linear.types import Bool, Float, Int, Tensor


class ClosedFormState(NamedTuple):
    """A solved context.

    Attributes:
        ridge: What predicts rows from their features.
        statistics: What standardises rows.
    """

    ridge: RidgeState
    statistics: ContextStatistics


class ClosedForm(nn.Module):
    """Predicts rows from ridge regressions that are solved on the context. Has no parameters.

    Args:
        options: Features and penalties.
        max_columns: Most columns of a table.
        num_classes: Classes of a table.
    """

    def __init__(self, options: RidgeOptions, *, max_columns: int, num_classes: int) -> None:
        super().__init__()
        self.max_columns = max_columns
        self.regressions = RidgeRegressions(
            options, num_features=max_columns, num_classes=num_classes
        )

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.regressions.device

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"],
        rows_per_chunk: int,
    ) -> ClosedFormState:
        """Solve the regressions on labelled rows.

        Args:
            x: Features; NaN and infinities count as missing.
            y: Class indices from 0.
            categorical: Which columns hold category codes.
            rows_per_chunk: Rows looked at together. The result is the same up to rounding.
        """
        statistics = context_statistics(
            x, y, categorical, num_features=None, rows_per_chunk=rows_per_chunk
        )
        context = self.regressions.open(x, y, statistics, rows_per_chunk)
        return ClosedFormState(context.state, statistics)

    def predict(self, state: ClosedFormState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
        return self.regressions.query(x, state.ridge, state.statistics).logits()
