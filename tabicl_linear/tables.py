"""Turns tables into tokens."""

from collections.abc import Iterator

import torch

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.embedding.base import Embedding
from tabicl_linear.embedding.statistics import ContextStatistics, standardise
from tabicl_linear.ridge_inputs import RidgeContext, RidgeInputs, RidgePredictions, RidgeState
from tabicl_linear.strategies.base import Strategy, Tokens
from tabicl_linear.types import Float, Int, Tensor


class Tables:
    """Makes tokens from rows and labels of tasks, with the statistics of their contexts.

    Args:
        embedding: psi_x and psi_y.
        strategy: Layout of the tokens.
        ridge: Adds predictions of ridge regressions to rows; None without them.
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
        """The predictor of a context's rows, which may extend a state; None without ridge inputs.

        Args:
            x: All rows of the context.
            y: Their labels.
            state: State of the rows before them.
            rows_per_chunk: Rows processed together.
        """
        if self.ridge is None:
            return None
        if state is not None:
            return self.ridge.resume(state, self.statistics)
        return self.ridge.open(x, y, self.statistics, rows_per_chunk)

    def context_tokens(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        ridge: RidgeContext | None,
        rows_per_chunk: int,
    ) -> Iterator[Float[Tensor, "g t d"]]:
        """Tokens of the rows of a context, chunk by chunk; `ridge` advances with them."""
        pairs = zip(x.split(rows_per_chunk, dim=1), y.split(rows_per_chunk, dim=1), strict=True)
        for rows, labels in pairs:
            ridge_predictions = None if ridge is None else ridge.read(rows, labels)
            yield self.strategy.context_tokens(
                self._rows(rows, ridge_predictions), self.embedding.labels(labels, self.num_columns)
            )

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

        If the labels of query rows are written as well, they are predicted like context rows.
        Nothing is solved for the tasks that `RidgeOptions.dropout` chooses.
        """
        if self.ridge is None:
            return None
        share = self.ridge.options.dropout
        if not share:
            return self._solved(batch, self.statistics)
        generator = torch.Generator().manual_seed(batch.index)
        kept = torch.rand(len(batch.x), generator=generator, device="cpu") >= share
        tasks = kept.nonzero().squeeze(1).to(batch.x.device)
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
        """Whether the labels of query rows are written while training."""
        return self.strategy.target == "multi" and self.strategy.writes_query_labels

    def _solved(self, batch: TaskBatch, statistics: ContextStatistics) -> RidgePredictions:
        assert self.ridge is not None
        x, queries = batch.x.tensor_split([batch.num_context], dim=1)
        y, labels = batch.y.tensor_split([batch.num_context], dim=1)
        context = self.ridge.open(x, y, statistics)
        ridge_predictions = [context.read(x, y)]
        if self._writes_queries:
            ridge_predictions.append(context.read(queries, labels))
        else:
            ridge_predictions.append(self.ridge.query(queries, context.state, statistics))
        return RidgePredictions.joined(ridge_predictions)

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
