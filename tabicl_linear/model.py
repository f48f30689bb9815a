"""The in-context model: fit a context, predict queries."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tabicl_linear.architecture import Architecture
from tabicl_linear.backbone.stack import Backbone
from tabicl_linear.backends.placement import Backend, PlacedModule
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.embedding import inputs
from tabicl_linear.embedding.labels import present_classes, without_absent
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics
from tabicl_linear.errors import ConfigError, DataError, UnsupportedReadout
from tabicl_linear.kernels.state import row_major
from tabicl_linear.mixers.base import LayerState, MixerFactory
from tabicl_linear.readouts import ReadoutFactory
from tabicl_linear.ridge_inputs import RidgeContext, RidgePredictions, RidgeState
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.tables import Rows, Tables
from tabicl_linear.types import Bool, Float, Int, Tensor


class InContextState(NamedTuple):
    """A fitted context: everything that a prediction needs besides the model.

    Attributes:
        layers: State of every layer.
        statistics: Column statistics, by which rows are standardised, and the mean label.
        classes: Which classes occur in the context; None if the model does not mask the others.
        ridge: State of the ridge regressions; None for a model without them.
    """

    layers: tuple[LayerState, ...]
    statistics: ContextStatistics
    classes: Bool[Tensor, "b y"] | None = None
    ridge: RidgeState | None = None


class InContextModel(PlacedModule):
    """Classifies rows of a table from labelled rows of it, without training on the table.

    `predict(fit(context), queries)` is the only way through the network, also in training: a token
    is either written (context) or only reads (query). The module has no state besides parameters.

    Args:
        backbone: Blocks that write and read tokens.
        strategy: Label embedding and target formulation.
        architecture: Shape of the network.

    Attributes:
        provenance: Origin of the weights (git commit, prior, trained range of rows, steps), from
            their file; empty for new weights.
    """

    def __init__(self, backbone: Backbone, strategy: Strategy, architecture: Architecture) -> None:
        super().__init__(architecture.dim)
        self.provenance: Mapping[str, Any] = {}
        self.architecture = architecture
        self.embedding = architecture.make_embedding()
        self.strategy = strategy
        self.backbone = backbone
        self.head = architecture.make_head()
        self.ridge = architecture.make_ridge_inputs()

    @classmethod
    def from_parts(
        cls,
        mixer: MixerFactory,
        readout: ReadoutFactory,
        strategy: Strategy,
        architecture: Architecture,
        backend: Backend = "auto",
    ) -> "InContextModel":
        """Assemble a model, with a mixer and a readout for each layer.

        Raises:
            ConfigError: The parts do not fit together.
        """
        backbone = architecture.make_backbone(mixer, readout)
        ridge = architecture.ridge_inputs
        strategy.check_labels_are_hidden(
            is_causal=backbone.is_causal, ridge_form=None if ridge is None else ridge.form
        )
        return cls(backbone, strategy, architecture).place(backend)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def max_columns(self) -> int:
        """Maximum number of columns of a table."""
        return self.architecture.num_features

    @property
    def is_causal(self) -> bool:
        """Whether no row depends on later ones, so that a fitted state can be extended."""
        return self.backbone.is_causal and (self.ridge is None or self.ridge.is_causal)

    @property
    def longest_context(self) -> int | None:
        """Rows of the longest context in training; None if the model's file does not say."""
        rows = self.provenance.get("trained_rows")
        return None if rows is None else int(rows[1])

    def check_extensible(self) -> None:
        """Raise `UnsupportedReadout` if a fitted state cannot be extended by more rows."""
        self.backbone.check_extensible()
        if not self.is_causal:
            raise UnsupportedReadout(
                "A fitted state can be extended only if rows depend on earlier rows alone: here "
                "ridge inputs are solved from all rows. Fit all rows at once, or use a model "
                "with ridge_inputs.form: earlier_rows."
            )

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
        state: InContextState | None = None,
        statistics: ContextStatistics | None = None,
        rows_per_chunk: int | None = None,
        spill: Path | None = None,
    ) -> InContextState:
        """Write labelled rows and return the state.

        A causal model needs memory for one chunk of rows, others also for one hidden token per row
        (two if bidirectional; docs/architecture.md, "Long contexts"). With gradients, everything
        stays in memory.

        Args:
            x: Features; NaN and infinities count as missing. Any floating dtype: rows are
                standardised in float64, then converted to the dtype of the weights.
            y: Class indices from 0.
            categorical: Which columns hold category codes; none if left out.
            state: Fitted state to extend by these rows. The result is that of fitting all rows at
                once with the statistics (and trees) of the first rows.
            statistics: Column statistics, from the method `statistics`; those of these rows if left
                out. Pass them if these rows are only a part of a context.
            rows_per_chunk: Maximum number of rows of each task in the network at a time; never more
                than `inputs.chunk_rows`. The result does not depend on it, up to rounding.
            spill: Folder for a temporary file that holds the hidden tokens, instead of memory, if
                the model is not causal. Only without gradients.

        Raises:
            DataError: The model cannot take the rows, labels or state, or the temporary file cannot
                be written.
            ConfigError: `rows_per_chunk` is less than one.
            UnsupportedReadout: `state` is given, but a layer reads tokens written later.
        """
        limits = inputs.Limits(self.device, self.architecture.num_classes)
        inputs.check_context(x, y, categorical, limits=limits)
        cells = self.embedding.num_cells(x.shape[2])
        size = inputs.chunk_rows(self.device, rows_per_chunk, cells, x.shape[1])
        initial = None
        if state is not None:
            self._check_state(state)
            self.check_extensible()
            if statistics is not None:
                raise DataError("A state has statistics of its own: leave `statistics` out.")
            statistics, initial = state.statistics, state.layers
        if statistics is None:
            statistics = self.statistics(x, y, categorical, rows_per_chunk=size)
        else:
            inputs.check_extension(x, categorical, statistics.fill.shape)
        tables = self.tables(statistics)
        chunks = list(zip(x.split(size, dim=1), y.split(size, dim=1), strict=True))
        with self.computing():
            before = tables.open(x, y, None if state is None else state.ridge, size)
            if self.backbone.is_causal:
                layers, after = self._write_each(chunks, tables, initial, before)
            else:  # every layer needs the whole context before its tokens read
                tokens, after = tables.held_tokens(chunks, before, spill)
                layers = self.backbone.write_held(tokens, initial, num_cells=tables.num_cells)
        ridge = None if after is None else after.state
        return row_major(InContextState(layers, statistics, self._classes(y, state), ridge))

    def _write_each(
        self,
        chunks: Sequence[Rows],
        tables: Tables,
        layers: tuple[LayerState, ...] | None,
        ridge: RidgeContext | None,
    ) -> tuple[tuple[LayerState, ...], RidgeContext | None]:
        """Write chunk after chunk, so that only one chunk's tokens are in memory.

        Returns:
            The state of every layer and the ridge context after the last chunk.
        """
        for x, y in chunks:
            tokens, ridge = tables.context_tokens(x, y, ridge)
            layers = self.backbone.write(tokens, layers, num_cells=tables.num_cells)
        assert layers is not None, "a context without rows"
        return layers, ridge

    def predict(
        self,
        state: InContextState,
        x: Float[Tensor, "b q m"],
        *,
        rows_per_chunk: int | None = None,
    ) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows; every row is predicted independently of the others.

        Args:
            state: Fitted context.
            x: Features, as in `fit`.
            rows_per_chunk: Maximum number of rows of each task in the network, as in `fit`.

        Raises:
            DataError: The rows do not have the columns of the context, or the state is foreign.
            ConfigError: `rows_per_chunk` is less than one.
        """
        self._check_state(state)
        inputs.check_queries(x, state.statistics.fill.shape, self.device)
        size = inputs.chunk_rows(self.device, rows_per_chunk, self.embedding.num_cells(x.shape[2]))
        # Chunks of nearly equal length: a last chunk of few rows would use other kernels.
        pieces = x.tensor_split(max(1, -(-x.shape[1] // size)), dim=1)
        with self.computing():
            return torch.cat([self._predict(state, piece) for piece in pieces], dim=1)

    def _predict(self, state: InContextState, x: Tensor) -> Tensor:
        tables = self.tables(state.statistics)
        ridge_predictions = tables.query_predictions(x, state.ridge)
        tokens = tables.query_tokens(x, ridge_predictions)
        hidden = self.backbone.predict(tokens, state.layers, num_cells=tables.num_cells)
        return self.logits(hidden, x.shape[2], state.classes, ridge_predictions)

    def forward(self, batch: TaskBatch) -> Float[Tensor, "b q y"]:
        """Logits of the query rows in the training layout of the strategy.

        Raises:
            DataError: The batch has no query row, or no context row.
        """
        return self.train_pass(batch)[0]

    def train_pass(
        self, batch: TaskBatch, initial: Sequence[LayerState] | None = None
    ) -> tuple[Float[Tensor, "b q y"], tuple[LayerState, ...]]:
        """The result of `forward`, and the state of every layer after everything is written.

        Args:
            batch: Tasks to train on.
            initial: States to start from; if None, the learned ones, or zero.

        Raises:
            DataError: The batch has no query row, or no context row.
            ConfigError: The strategy does not give one token for each query row.
        """
        batch.check_split()
        num_context = batch.num_context
        x, y = batch.x[:, :num_context], batch.y[:, :num_context]
        statistics = self.statistics(x, y, batch.categorical)
        tables = self.tables(statistics)
        num_cells = tables.num_cells
        with self.computing():
            ridge_predictions = tables.training_predictions(batch)
            written, queries = tables.training_tokens(batch, ridge_predictions)
            if self.strategy.target == "multi":
                outputs, layers = self.backbone.fit(written, initial, num_cells=num_cells)
            else:
                # The last layer's outputs for written tokens are not used, so not computed.
                layers = self.backbone.write(written, initial, num_cells=num_cells)
                outputs = self.backbone.predict(queries, layers, num_cells=num_cells)
        hidden = self.strategy.predictions(outputs, num_context=num_context)
        num_queries = batch.x.shape[1] - num_context
        if hidden.shape[1] != num_queries:
            raise ConfigError(
                f"{type(self.strategy).__name__} predicts {num_queries} query rows from "
                f"{hidden.shape[1]} tokens; its query_tokens and multi_target_outputs have to give "
                "one for each."
            )
        classes = self._classes(y)
        of_queries = (
            None if ridge_predictions is None else ridge_predictions.rows(slice(num_context, None))
        )
        return self.logits(hidden, tables.num_columns, classes, of_queries), layers

    def statistics(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        categorical: Bool[Tensor, "b m"] | None = None,
        *,
        rows_per_chunk: int | None = None,
    ) -> ContextStatistics:
        """The statistics by which `fit` standardises rows, which takes them as an argument, too.

        Arguments as in `fit`.
        """
        self.embedding.check(x.shape[2])
        num_features = self.architecture.num_features if self.embedding.scales_rows else None
        return context_statistics(
            x, y, categorical, num_features=num_features, rows_per_chunk=rows_per_chunk
        )

    def tables(self, statistics: ContextStatistics) -> Tables:
        """The object that makes tokens from rows and labels with these statistics."""
        return Tables(self.embedding, self.strategy, self.ridge, statistics)

    def _classes(self, y: Tensor, before: InContextState | None = None) -> Tensor | None:
        """Classes among the labels or in an earlier state; None if absent ones are not masked."""
        if not self.architecture.mask_absent_classes:
            return None
        earlier = None if before is None else before.classes
        return present_classes(y, self.architecture.num_classes, earlier)

    def logits(
        self,
        hidden: Float[Tensor, "g u d"],
        num_columns: int,
        classes: Bool[Tensor, "b y"] | None,
        ridge_predictions: RidgePredictions | None,
    ) -> Float[Tensor, "b u y"]:
        """Logits of hidden tokens that have passed the backbone.

        Args:
            hidden: The tokens.
            num_columns: Columns of the tables.
            classes: Which classes occur in the context; None to mask none.
            ridge_predictions: Predictions of the ridge regressions for the rows; None without them.
        """
        logits: Tensor = self.head(self.embedding.outputs(hidden, num_columns))
        if self.ridge is not None and ridge_predictions is not None:
            logits = logits + self.ridge.logits(ridge_predictions)
        return logits if classes is None else without_absent(logits, classes)

    def _check_state(self, state: InContextState) -> None:
        """Raise `DataError` for the state of another model, since kernels do not check shapes."""
        if (
            not isinstance(state, InContextState)
            or (state.classes is None) == self.architecture.mask_absent_classes
            or (state.ridge is None) != (self.ridge is None)
            or not self.backbone.takes(state.layers, self.device)
        ):
            raise DataError(
                "The state is not one of this model on this device; fit the context with the same "
                "model, on the device where it is now."
            )
