"""Samples the sizes of a batch of tasks: columns and the split into context and queries."""

from dataclasses import dataclass

import numpy as np

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.base import TaskShape


@dataclass(frozen=True)
class TaskShapes:
    """Shapes with a fixed number of rows, drawn as the paper trains (appendix, hyper-parameters).

    The number of columns is uniform on `min_features..max_features` and the number of context rows
    uniform on `min_context..max_context`. One draw serves a whole batch. Impossible bounds raise
    `ConfigError` at construction.

    Attributes:
        batch_size: Tasks in a batch.
        num_rows: Rows of every task, context and queries together.
        min_context: Fewest context rows; at least `max_classes`, so that every class fits.
        min_features: Fewest columns.
        max_features: Most columns.
        max_classes: The largest number of classes a task may have.
        max_context: Most context rows; `num_rows - 1` (a single query) if None.
    """

    batch_size: int = 8
    num_rows: int = 1000
    min_context: int = 64
    min_features: int = 2
    max_features: int = 20
    max_classes: int = 10
    max_context: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size}: a batch needs at least one task.")
        if self.max_classes < 2:
            raise ConfigError(f"max_classes={self.max_classes}: a task needs at least two classes.")
        if not 1 <= self.min_features <= self.max_features:
            raise ConfigError(
                f"min_features={self.min_features}, max_features={self.max_features}: use "
                "1 <= min_features <= max_features."
            )
        if self.min_context < self.max_classes:
            raise ConfigError(
                f"min_context={self.min_context} with max_classes={self.max_classes}: every class "
                "must fit into the context; raise min_context or lower max_classes."
            )
        if self.min_context >= self.num_rows:
            raise ConfigError(
                f"min_context={self.min_context} with num_rows={self.num_rows} leaves no query "
                "row; lower min_context or raise num_rows."
            )
        if not self.min_context <= self.largest_context < self.num_rows:
            raise ConfigError(
                f"max_context={self.max_context}: use a value from min_context="
                f"{self.min_context} to num_rows - 1 = {self.num_rows - 1}."
            )

    @property
    def largest_context(self) -> int:
        """The most context rows a sampled shape can have."""
        return self.num_rows - 1 if self.max_context is None else self.max_context

    def sample(self, rng: np.random.Generator) -> TaskShape:
        """Draw one shape; the result depends on the state of `rng` alone."""
        num_features = rng.integers(self.min_features, self.max_features, endpoint=True)
        num_context = rng.integers(self.min_context, self.largest_context, endpoint=True)
        return TaskShape(
            batch_size=self.batch_size,
            num_rows=self.num_rows,
            num_context=int(num_context),
            num_features=int(num_features),
            num_classes=self.max_classes,
        ).validate()
