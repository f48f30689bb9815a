"""The rows of one context, as trees and regressions take them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from tabicl_linear.embedding.statistics import ContextStatistics, standardise
from tabicl_linear.estimator.arrays import IntArray
from tabicl_linear.estimator.learners.chosen_trees.fixed_alone import Penalties, solve_alone
from tabicl_linear.estimator.learners.chosen_trees.solving import LeafRows, Linear
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees
from tabicl_linear.ridge_inputs import RidgeRegressions
from tabicl_linear.types import Float, Int, Tensor

MOST_SAMPLED = 2048
"""Maximum number of rows of the sample, evenly spread over the context: they are left out to choose
penalties and make logits."""


@dataclass(eq=False)
class TaskRows:
    """The rows of one task with the fixed features of one round; methods take indices of rows.

    Attributes:
        x, y: The rows as they were given, and their class indices.
        thresholds: Standardised values that fixed trees compare with.
        statistics: Column statistics, by which rows are standardised.
        rows_per_chunk: Maximum number of rows of each of the `chunks`.
        labels, counts: The class indices as an array, and how many rows each class has, float64.
        kinds: The columns of each kind of fixed features.
        num_columns: Number of fixed features that are the columns themselves, which come first;
            0 if the options leave out the kind "values".
        num_smooth: Number of fixed features without the leaves of fixed trees, which come last.
            Long contexts are solved with these alone: chosen trees make fixed ones superfluous,
            and this saves a third of a fit.
        sample: Indices of the rows of the sample.
    """

    regressions: RidgeRegressions
    x: Float[Tensor, "1 c m"]
    y: Int[Tensor, "1 c"]
    thresholds: Float[Tensor, "1 r"]
    statistics: ContextStatistics
    rows_per_chunk: int

    def __post_init__(self) -> None:
        self.labels: IntArray = self.y[0].cpu().numpy().astype(np.int64)
        counts = np.bincount(self.labels, minlength=self.regressions.num_classes)
        self.counts = torch.from_numpy(counts.astype(np.float64)).to(self.x.device)
        places = self.regressions.features.places(self.x.shape[2])
        self.kinds = list(places.values())
        self.num_columns = self.x.shape[2] if "values" in places else 0
        self.num_smooth: int = places["trees"].start if "trees" in places else self.kinds[-1].stop
        self.sample: IntArray = np.arange(0, len(self), -(-len(self) // MOST_SAMPLED))

    def __len__(self) -> int:
        """Number of rows."""
        return self.x.shape[1]

    def standardised(self, rows: IntArray) -> Float[Tensor, "n m"]:
        """Some rows, in float32 and without missing values."""
        z: Tensor = standardise(self.x[:, rows], self.statistics)[0].float()
        return z

    def fixed(self, rows: IntArray) -> Float[Tensor, "n f"]:
        """Fixed features of some rows."""
        return self.regressions.of_rows(self.x[:, rows], self.thresholds, self.statistics)[0]

    def one_hot(self, rows: IntArray) -> Float[Tensor, "n y"]:
        """One-hot labels of some rows, float64."""
        return self.regressions.one_hot(self.y[:, rows])[0]

    def leaf_rows(self, rows: IntArray, trees: Trees) -> LeafRows:
        """Some rows as a regression on these trees takes them."""
        z = self.standardised(rows)
        return LeafRows(trees.of_rows(z), self.fixed(rows), self.one_hot(rows).float())

    def chunks(self, rows: IntArray) -> Iterator[IntArray]:
        """The indices, at most `rows_per_chunk` at a time."""
        yield from np.array_split(rows, -(-len(rows) // self.rows_per_chunk))

    def fixed_regressions(self, penalties: Penalties | None = None) -> tuple[Linear, Penalties]:
        """Solve regressions on fixed features alone, on all rows, which must be few.

        `penalties` are those to choose from, for each set; None takes those of the options.
        Returns the solution, and the penalties that were chosen.
        """
        every, sets = np.arange(len(self)), self.regressions.features.sets(self.x.shape[2])
        penalties = penalties or [self.regressions.options.penalties] * len(sets)
        solution, chosen = solve_alone(self.fixed(every), self.one_hot(every), sets, penalties)
        return solution._replace(left_out=solution.left_out[self.sample]), chosen
