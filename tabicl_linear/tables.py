"""Turns tables into tokens."""

from collections.abc import Sequence
from pathlib import Path

import torch

from tabicl_linear.backbone.long_context import HeldTokens
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.embedding.base import Embedding
from tabicl_linear.embedding.statistics import ContextStatistics, standardise
from tabicl_linear.ridge_inputs import RidgeContext, RidgeInputs, RidgePredictions, RidgeState
from tabicl_linear.strategies.base import Strategy, Tokens
from tabicl_linear.types import Float, Int, Tensor

Rows = tuple[Float[Tensor, "b _n m"], Int[Tensor, "b _n"]]
"""Some rows of a context and their labels."""


class Tables:
    """Makes tokens from rows and labels of tasks, with the statistics of their contexts.

    Args:
        embedding: psi_x and psi_y.
        strategy: Layout of the tokens.
        ridge: Ridge regressions whose predictions are added to rows; None without them.
        statistics: Statistics of the contexts.
    """

    def __init__(
        self,
        embedding: Embedding,
        strategy: Strategy,
        ridge: RidgeInputs | None,
        statistics: ContextStatistics,
    ) -> None:
        self.embedding = embedding
        self.strategy = strategy
        self.ridge = ridge
        self.statistics = statistics
        self.num_columns = statistics.fill.shape[1]
        self.num_cells = embedding.num_cells(self.num_columns)

    def open(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        state: RidgeState | None = None,
        rows_per_chunk: int | None = None,
    ) -> RidgeContext | None:
        """The ridge regressions of a context before its rows are read; None without ridge inputs.

        Args:
            x: All rows of the context.
            y: Their labels.
            state: State of the ridge regressions after earlier rows, which these rows extend; None
                for a new context.
            rows_per_chunk: Rows processed at a time.
        """
        if self.ridge is None:
            return None
        if state is not None:
            return self.ridge.resume(state, self.statistics)
        return self.ridge.open(x, y, self.statistics, rows_per_chunk)

    def context_tokens(
        self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], ridge: RidgeContext | None
    ) -> tuple[Float[Tensor, "g t d"], RidgeContext | None]:
        """Tokens of the next rows of a context.

        Args:
            x: The rows.
            y: Their labels.
            ridge: Ridge regressions before these rows, from `open`.

        Returns:
            The tokens, and the ridge regressions after these rows.
        """
        ridge_predictions = None
        if ridge is not None:
            ridge_predictions, ridge = ridge.read(x, y)
        rows = self._rows(x, ridge_predictions)
        labels = self.embedding.labels(y, self.num_columns)
        return self.strategy.context_tokens(rows, labels), ridge

    def held_tokens(
        self, chunks: Sequence[Rows], ridge: RidgeContext | None, spill: Path | None
    ) -> tuple[HeldTokens, RidgeContext | None]:
        """Tokens of a whole context.

        Args:
            chunks: Rows and labels of the context, in order.
            ridge: Ridge regressions before these rows, from `open`.
            spill: Folder for a file that holds the tokens; None to hold them in memory.

        Returns:
            The tokens, and the ridge regressions after these rows.
        """
        tokens_held = HeldTokens(spill)
        for x, y in chunks:
            tokens, ridge = self.context_tokens(x, y, ridge)
            tokens_held.append(tokens)
        return tokens_held, ridge

    def query_predictions(
        self, x: Float[Tensor, "b q m"], state: RidgeState | None
    ) -> RidgePredictions | None:
        """Ridge predictions of unlabelled rows; None without ridge inputs."""
        if self.ridge is None or state is None:
            return None
        return self.ridge.query(x, state, self.statistics)

    def query_tokens(
        self, x: Float[Tensor, "b q m"], ridge_predictions: RidgePredictions | None
    ) -> Float[Tensor, "g u d"]:
        """Tokens of unlabelled rows."""
        return self.strategy.query_tokens(self._rows(x, ridge_predictions), self._placeholder())

    def training_predictions(self, batch: TaskBatch) -> RidgePredictions | None:
        """Ridge predictions of all rows of a training batch; None without ridge inputs.

        Query rows whose labels are written as well are predicted like context rows. For the tasks
        that `RidgeOptions.dropout` chooses, nothing is solved and class shares are predicted.
        """
        if self.ridge is None:
            return None
        share = self.ridge.options.dropout
        if not share:
            return self._solved(batch, self.statistics)
        generator = torch.Generator().manual_seed(batch.index)
        is_kept = torch.rand(len(batch.x), generator=generator, device="cpu") >= share
        tasks = is_kept.nonzero().squeeze(1).to(batch.x.device)
        written = batch.y if self._writes_queries else batch.y[:, : batch.num_context]
        ridge_predictions = self.ridge.class_shares(written, batch.x.shape[1])
        if not len(tasks):
            return ridge_predictions
        some = batch._replace(
            x=batch.x[tasks], y=batch.y[tasks], categorical=batch.categorical[tasks]
        )
        statistics = ContextStatistics(*(part[tasks] for part in self.statistics))
        return ridge_predictions.replaced(tasks, self._solved(some, statistics))

    @property
    def _writes_queries(self) -> bool:
        """Whether the labels of query rows are written in training."""
        return self.strategy.target == "multi" and self.strategy.writes_query_labels

    def _solved(self, batch: TaskBatch, statistics: ContextStatistics) -> RidgePredictions:
        """Ridge predictions of all rows of the tasks, without dropout."""
        assert self.ridge is not None
        x, queries = batch.x.tensor_split([batch.num_context], dim=1)
        y, labels = batch.y.tensor_split([batch.num_context], dim=1)
        of_context, context = self.ridge.open(x, y, statistics).read(x, y)
        if self._writes_queries:
            of_queries, _ = context.read(queries, labels)
        else:
            of_queries = self.ridge.query(queries, context.state, statistics)
        return RidgePredictions.joined([of_context, of_queries])

    def training_tokens(
        self, batch: TaskBatch, ridge_predictions: RidgePredictions | None
    ) -> Tokens:
        """Tokens of a training batch in the layout of the strategy."""
        return self.strategy.training_tokens(
            self._rows(batch.x, ridge_predictions),
            self.embedding.labels(batch.y, self.num_columns),
            self._placeholder(),
            num_context=batch.num_context,
        )

    def _rows(
        self, x: Tensor, ridge_predictions: RidgePredictions | None
    ) -> Float[Tensor, "g n d"]:
        dtype = self.embedding.label_projection.weight.dtype
        rows = self.embedding.rows(standardise(x, self.statistics).to(dtype))
        if self.ridge is None or ridge_predictions is None:
            return rows
        return rows + self.embedding.label_tokens(
            self.ridge.tokens(ridge_predictions), self.num_columns
        )

    def _placeholder(self) -> Float[Tensor, "g 1 d"]:
        return self.embedding.unknown_label(self.statistics.mean_label, self.num_columns)
