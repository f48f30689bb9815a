"""Samples the shape of a batch of tasks: rows, columns, split and number of tasks."""

import math
from dataclasses import dataclass

import numpy as np

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.base import TaskShape
from tabicl_linear.priors.rows import FixedRows, RowDistribution

MOST_CELLS = 2**30
"""Most cells in the tables of a batch, 4 GiB in float32: no network could train on more."""


@dataclass(frozen=True)
class TaskShapes:
    """Sizes of batches of tasks; the defaults are the paper's (appendix, hyper-parameters).

    The number of columns is uniform on `min_features..max_features`, the number of rows follows
    `num_rows`, and the number of context rows is uniform on `min_context..max_context`. All tasks
    of a batch share one draw. Bounds of the context are whole numbers of rows or, below 1, shares
    of the task's rows; the context always has at least `max_classes` rows and leaves at least one
    query row. Impossible settings raise `ConfigError` at construction.

    Attributes:
        batch_size: Tasks in a batch, or `{most rows: tasks}`, of which the entry with the lowest
            sufficient limit applies; None with `tokens_per_batch`.
        num_rows: Rows of every task, context and queries together, or their distribution.
        min_context: Fewest context rows; at least `max_classes`, so that every class fits.
        min_features: Fewest columns.
        max_features: Most columns.
        max_classes: The largest number of classes a task may have.
        max_context: Most context rows; all but a single query if None.
        num_queries: Query rows of every task, so that all other rows are context; if None, the
            split is drawn.
        stages: `{index: rows}`: from the training batch with that index on, these rows (a number
            or a distribution) replace `num_rows`. The index counts batches, not optimiser steps:
            a step takes `trainer.accumulate_grad_batches` batches.
        tokens_per_batch: Instead of `batch_size`: the number of tasks, at least one, that comes
            closest to this many tokens, so that wide and narrow, long and short tables cost alike.
        log_uniform_features: Draw the number of columns log-uniformly, so that narrow tables are as
            frequent as wide ones.
        columns_per_cell: With `tokens_per_batch`: number of columns that make one token of a row,
            in models with a token per cell; None counts one token per row.
    """

    batch_size: int | dict[int, int] | None = 8
    num_rows: int | RowDistribution = 1000
    min_context: int | float = 64
    min_features: int = 2
    max_features: int = 20
    max_classes: int = 10
    max_context: int | float | None = None
    num_queries: int | None = None
    stages: dict[int, int | RowDistribution] | None = None
    tokens_per_batch: int | None = None
    columns_per_cell: int | None = None
    log_uniform_features: bool = False

    def __post_init__(self) -> None:
        if self.max_classes < 2:
            raise ConfigError(f"max_classes={self.max_classes}: a task needs at least two classes.")
        if not 1 <= self.min_features <= self.max_features:
            raise ConfigError(
                f"min_features={self.min_features}, max_features={self.max_features}: use "
                "1 <= min_features <= max_features."
            )
        if self.stages and (first := min(self.stages)) < 1:
            raise ConfigError(
                f"stages has an entry for batch {first}, but num_rows holds from batch 0 on; use "
                "numbers of at least 1."
            )
        if self.batch_size is None or self.tokens_per_batch is not None:
            self._check_tokens()
        else:
            self._check_batch_sizes(self.batch_size)
        self._check_split()
        self._check_cells()

    @property
    def row_range(self) -> tuple[int, int]:
        """The fewest and the most rows that a task can have, in any stage."""
        every = [self.num_rows, *(self.stages or {}).values()]
        fewest, most = zip(*(_distribution(rows).bounds for rows in every), strict=True)
        return min(fewest), max(most)

    @property
    def context_range(self) -> tuple[int, int]:
        """The fewest and the most context rows that a task can have, in any stage."""
        fewest, most = self.row_range
        return self._split_range(fewest)[0], self._split_range(most)[1]

    def rows(self, index: int | None = None) -> RowDistribution:
        """The distribution of the rows of training batch `index`; the last stage's if None."""
        stages = {0: self.num_rows, **(self.stages or {})}
        return _distribution(stages[max(i for i in stages if index is None or i <= index)])

    def sample(self, rng: np.random.Generator, index: int | None = None) -> TaskShape:
        """Draw one shape; the result depends on the state of `rng` and on the stage alone.

        Args:
            rng: The only source of randomness.
            index: Training batch that the shape is for; the last stage applies if None.
        """
        num_features = self._sample_features(rng)
        num_rows = self.rows(index).sample(rng)
        num_context = rng.integers(*self._split_range(num_rows), endpoint=True)
        return TaskShape(
            batch_size=self.num_tasks(num_rows, num_features),
            num_rows=num_rows,
            num_context=int(num_context),
            num_features=num_features,
            num_classes=self.max_classes,
        ).validate()

    def _sample_features(self, rng: np.random.Generator) -> int:
        if not self.log_uniform_features:
            return int(rng.integers(self.min_features, self.max_features, endpoint=True))
        # The probability of a number is the length from it to the next on the logarithmic scale.
        low, high = math.log(self.min_features), math.log(self.max_features + 1)
        return min(int(math.exp(rng.uniform(low, high))), self.max_features)

    def num_tasks(self, num_rows: int, num_features: int) -> int:
        """Tasks in a batch of tables of this size."""
        if self.tokens_per_batch is not None:
            stride = self.columns_per_cell
            cells = 1 if stride is None else -(-num_features // stride)
            return max(1, round(self.tokens_per_batch / (num_rows * cells)))
        assert self.batch_size is not None
        if isinstance(self.batch_size, int):
            return self.batch_size
        return self.batch_size[min(limit for limit in self.batch_size if num_rows <= limit)]

    def _split_range(self, num_rows: int) -> tuple[int, int]:
        """Fewest and most context rows of a task; neither decreases as `num_rows` grows."""
        if self.num_queries is not None:
            return num_rows - self.num_queries, num_rows - self.num_queries
        most = num_rows - 1 if self.max_context is None else self.max_context
        return self._context_rows(self.min_context, num_rows), self._context_rows(most, num_rows)

    def _context_rows(self, bound: int | float, num_rows: int) -> int:
        # By value, not by type: a config may hold 500.0 for 500.
        rows = round(bound * num_rows) if bound < 1 else int(bound)
        return min(max(rows, self.max_classes), num_rows - 1)

    def _check_tokens(self) -> None:
        if self.batch_size is not None or self.tokens_per_batch is None:
            raise ConfigError(
                f"batch_size={self.batch_size} with tokens_per_batch={self.tokens_per_batch}: give "
                "one of them and set the other to null."
            )
        for name in ("tokens_per_batch", "columns_per_cell"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: use a number of at least 1.")

    def _check_batch_sizes(self, batch_size: int | dict[int, int]) -> None:
        if self.columns_per_cell is not None:
            raise ConfigError(
                f"columns_per_cell={self.columns_per_cell} counts tokens for tokens_per_batch; "
                "leave it out with a batch_size."
            )
        most = self.row_range[1]
        sizes = {most: batch_size} if isinstance(batch_size, int) else batch_size
        if min(sizes.values(), default=0) < 1:
            raise ConfigError(f"batch_size={self.batch_size}: a batch needs at least one task.")
        if max(sizes) < most:
            raise ConfigError(
                f"batch_size={self.batch_size} has no entry for num_rows={most}; add one with a "
                "limit of at least that many rows."
            )

    def _check_split(self) -> None:
        """Check the bounds at the fewest and the most rows; row numbers in between cannot fail."""
        fewest, most = self.row_range
        self._check_bound("min_context", self.min_context)
        if self.max_context is not None:
            self._check_bound("max_context", self.max_context)
        least = self.max_classes if self.min_context < 1 else self.min_context
        if least >= fewest:
            raise ConfigError(
                f"min_context={self.min_context} with max_classes={self.max_classes} and "
                f"num_rows={fewest} leaves no query row; lower min_context or raise num_rows."
            )
        if self.num_queries is not None:
            self._check_num_queries(self.num_queries, fewest)
            return
        if self.max_context is not None and self.max_context >= most:
            raise ConfigError(
                f"max_context={self.max_context} with num_rows={most} leaves no query row; lower "
                "max_context or raise num_rows."
            )
        for num_rows in (fewest, most):
            low, high = self._split_range(num_rows)
            if low > high:
                raise ConfigError(
                    f"max_context={self.max_context} allows {high} context rows of "
                    f"num_rows={num_rows}, fewer than min_context={self.min_context}; raise "
                    "max_context or lower min_context."
                )

    def _check_cells(self) -> None:
        """Refuse batches too large for any memory now, and not when the first one is drawn."""
        limits = self.batch_size if isinstance(self.batch_size, dict) else {}
        fewest, most = self.row_range
        lengths = [fewest, most, *(limit for limit in limits if fewest < limit < most)]
        sizes = [
            (self.num_tasks(rows, columns), rows, columns)
            for rows in lengths
            for columns in (self.min_features, self.max_features)
        ]
        tasks, rows, columns = max(sizes, key=math.prod)
        if math.prod((tasks, rows, columns)) > MOST_CELLS:
            name = "batch_size" if self.tokens_per_batch is None else "tokens_per_batch"
            raise ConfigError(
                f"A batch may have {tasks} tasks of num_rows={rows} and {columns} columns, more "
                f"than {MOST_CELLS:,} cells together; lower num_rows, max_features or {name}."
            )

    def _check_bound(self, name: str, bound: int | float) -> None:
        if not (0 <= bound < 1 or (bound >= 1 and bound % 1 == 0)):
            raise ConfigError(f"{name}={bound}: use a whole number, or a share below 1.")
        if 1 <= bound < self.max_classes:
            raise ConfigError(
                f"{name}={bound} with max_classes={self.max_classes}: every class must fit into "
                f"the context; raise {name} or lower max_classes."
            )

    def _check_num_queries(self, num_queries: int, fewest: int) -> None:
        if self.max_context is not None:
            raise ConfigError(
                f"max_context={self.max_context} with num_queries={num_queries}: both determine "
                "the split; leave one of them out."
            )
        most = fewest - self._context_rows(self.min_context, fewest)
        if not 1 <= num_queries <= most:
            raise ConfigError(
                f"num_queries={num_queries} with min_context={self.min_context} and "
                f"num_rows={fewest}: use a value from 1 to {most}."
            )


def _distribution(rows: int | RowDistribution) -> RowDistribution:
    return FixedRows(rows) if isinstance(rows, int) else rows
