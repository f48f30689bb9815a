"""A learner in closed form whose trees are chosen on the table.

They are grown on one half of the rows and solved on the other, so that rows left out are honest.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tabicl_linear.backends.choice import tokenwise
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics, standardise
from tabicl_linear.estimator.learners.chosen_trees.context import TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import MANY_ROUNDS, rounds
from tabicl_linear.estimator.learners.chosen_trees.predictor import Predictor, fit_predictor
from tabicl_linear.kernels.chosen import using
from tabicl_linear.kernels.state import row_major
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions
from tabicl_linear.types import Bool, Float, Int, Tensor


class ChosenTreesState(NamedTuple):
    """What is known after a context; constant in size.

    Attributes:
        thresholds: Standardised values that fixed trees compare with, for each round.
        statistics: Column statistics, by which rows are standardised.
        predictors: One for each task.
    """

    thresholds: tuple[Float[Tensor, "b r"], ...]
    statistics: ContextStatistics
    predictors: tuple[Predictor, ...]


class ChosenTrees(nn.Module):
    """Predicts rows by ridge regressions on trees that are grown on other rows of the context.

    The context is divided into halves several times. Trees are grown by boosting on one half, and
    the regressions with their leaves beside fixed features solved on the other, and the other way
    round; rows are predicted by the mean of all solutions. A context row is left out of a solution
    exactly where other rows have grown its trees: what is chosen by such rows is chosen honestly.
    Has no parameters.

    Args:
        options: Fixed features and penalties.
        max_columns: Maximum number of columns of a table.
        num_classes: Number of classes of a table.
    """

    def __init__(self, options: RidgeOptions, *, max_columns: int, num_classes: int) -> None:
        super().__init__()
        self.max_columns = max_columns
        # Logits are made of the shares of all features together, so none of these alone.
        shares = replace(options, calibration="confidence")
        self.regressions = nn.ModuleList(
            RidgeRegressions(each, num_features=max_columns, num_classes=num_classes)
            for each in (
                replace(shares, seed=(options.seed + number) % 2**32)
                for number in range(MANY_ROUNDS)
            )
        )
        self._arguments = {
            "options": options,
            "max_columns": max_columns,
            "num_classes": num_classes,
        }

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return self.draws(1)[0].device

    def arguments(self) -> dict[str, Any]:
        """The arguments that make an equal learner."""
        return dict(self._arguments)

    def draws(self, count: int) -> list[RidgeRegressions]:
        """Fixed features of as many rounds, each drawn with another seed."""
        return [each for each in self.regressions[:count] if isinstance(each, RidgeRegressions)]

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"],
        rows_per_chunk: int,
        spill: Path | None = None,
    ) -> ChosenTreesState:
        """Grow trees on labelled rows, and solve the regressions; see `ContextLearner.fit`.

        Nothing is spilled: memory does not grow with the rows.
        """
        statistics = context_statistics(
            x, y, categorical, num_features=None, rows_per_chunk=rows_per_chunk
        )
        draws = self.draws(max(rounds(x.shape[1]), 1))
        thresholds = tuple(each.thresholds(x, statistics, rows_per_chunk) for each in draws)
        predictors = []
        for task in range(len(x)):
            one = slice(task, task + 1)
            of_task = ContextStatistics(*(part[one] for part in statistics))
            rows = [
                TaskRows(each, x[one], y[one], limits[one], of_task, rows_per_chunk)
                for each, limits in zip(draws, thresholds, strict=True)
            ]
            with using(tokenwise(device=torch.device("cpu"), backend="auto")):
                predictors.append(fit_predictor(rows))
        return row_major(ChosenTreesState(thresholds, statistics, tuple(predictors)))

    def predict(self, state: ChosenTreesState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
        z = standardise(x, state.statistics).float()
        draws = zip(self.draws(len(state.thresholds)), state.thresholds, strict=True)
        features = torch.cat([a.of_rows(x, b, state.statistics) for a, b in draws], dim=-1)
        pairs = zip(state.predictors, z, features, strict=True)
        return torch.stack([predictor.logits(*rows) for predictor, *rows in pairs])
