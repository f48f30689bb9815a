"""The in-context model: fit a context, predict queries."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from tabicl_linear.architecture import Architecture
from tabicl_linear.backbone.block import Block
from tabicl_linear.backbone.stack import Backbone
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics, standardise
from tabicl_linear.errors import ConfigError, DataError, UnsupportedReadout
from tabicl_linear.mixers.base import LayerState, MixerFactory
from tabicl_linear.readouts import ReadoutFactory
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.types import Bool, Float, Int, Tensor


class InContextState(NamedTuple):
    """A fitted context: all that predictions need of it.

    Attributes:
        layers: State of every layer.
        statistics: What standardises rows and stands in for unknown labels.
    """

    layers: tuple[LayerState, ...]
    statistics: ContextStatistics


class InContextModel(nn.Module):
    """Classifies rows of a table given labelled rows, without training on it.

    `predict(fit(context), queries)` is the only way through the network, in training too: a token
    is either written (context) or only read (query). The module holds no state but parameters.

    Args:
        backbone: Blocks that write and read tokens.
        strategy: Label embedding and target formulation.
        architecture: Shape of the network.

    Attributes:
        provenance: Where the weights come from (git commit, prior, trained range of rows, steps),
            as their file says; empty for fresh weights.
    """

    def __init__(self, backbone: Backbone, strategy: Strategy, architecture: Architecture) -> None:
        super().__init__()
        self.provenance: Mapping[str, Any] = {}
        self.architecture = architecture
        self.embedding = architecture.make_embedding()
        self.strategy = strategy
        self.backbone = backbone
        self.head = nn.Sequential(
            nn.Linear(architecture.dim, architecture.decoder_dim),
            nn.GELU(),
            nn.Linear(architecture.decoder_dim, architecture.num_classes),
        )

    @classmethod
    def from_parts(
        cls,
        mixer: MixerFactory,
        readout: ReadoutFactory,
        strategy: Strategy,
        architecture: Architecture,
    ) -> "InContextModel":
        """Assemble a model, one mixer and one readout per layer.

        Raises:
            ConfigError: Parts that do not fit together.
        """
        blocks = [cls._make_block(mixer, readout, architecture) for _ in range(architecture.depth)]
        final_norm = architecture.make_norm() if architecture.final_norm else None
        backbone = Backbone(
            blocks,
            final_norm,
            weave_states=architecture.weave_states,
            cell_attention=architecture.make_cell_attention(),
        )
        if strategy.target == "multi" and not backbone.is_causal:
            raise ConfigError(
                "Multi-target training writes the rows it predicts, and a readout that is not "
                "causal (or woven states) would let a row read its own label or later rows; use "
                "tabicl_linear.readouts.Causal without weave_states, or target: single."
            )
        return cls(backbone, strategy, architecture)

    @staticmethod
    def _make_block(
        mixer: MixerFactory, readout: ReadoutFactory, architecture: Architecture
    ) -> Block:
        layer = mixer(architecture.dim, architecture.num_heads)
        return Block(
            layer,
            # A mixer may have heads of its own (Mamba-2).
            readout(layer.num_heads),
            feed_forward=architecture.make_feed_forward(),
            norms=(architecture.make_norm(), architecture.make_norm()),
            norm_first=architecture.norm == "pre_rms",
        )

    @property
    def is_causal(self) -> bool:
        """Whether every layer reads causally, so that a fitted state can be extended."""
        return self.backbone.is_causal

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
        state: InContextState | None = None,
    ) -> InContextState:
        """Write labelled rows and return the state.

        Args:
            x: Features; NaN and infinities count as missing.
            y: Class indices from 0.
            categorical: Which columns hold category codes; none if left out.
            state: Fitted state to extend by these rows, under its statistics: the result is that
                of fitting all rows at once under the statistics of the first.

        Raises:
            DataError: Rows or labels that the model cannot take.
            UnsupportedReadout: `state` is given, but a layer reads tokens written later.
        """
        self._check_context(x, y, categorical, state)
        if state is None:
            statistics = self._statistics(x, y, categorical)
            initial = None
        else:
            statistics, initial = state.statistics, state.layers
        num_columns = x.shape[2]
        rows = self.embedding.rows(standardise(x, statistics))
        labels = self.embedding.labels(y.to(x.dtype), num_columns)
        tokens = self.strategy.context_tokens(rows, labels)
        num_cells = self.embedding.num_cells(num_columns)
        _, layers = self.backbone.fit(tokens, initial, num_cells=num_cells)
        return InContextState(layers, statistics)

    def predict(self, state: InContextState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows; every row is predicted independently of the others.

        Raises:
            DataError: Rows that do not have the columns of the context.
        """
        statistics = state.statistics
        expected = statistics.fill.shape
        if (x.shape[0], x.shape[2]) != tuple(expected):
            raise DataError(
                f"Queries of {x.shape[0]} tasks with {x.shape[2]} columns do not match the fitted "
                f"context of {expected[0]} tasks with {expected[1]} columns."
            )
        num_columns = x.shape[2]
        rows = self.embedding.rows(standardise(x, statistics))
        tokens = self.strategy.query_tokens(rows, self._placeholder(statistics))
        num_cells = self.embedding.num_cells(num_columns)
        hidden = self.backbone.predict(tokens, state.layers, num_cells=num_cells)
        return self.head(self.embedding.outputs(hidden, num_columns))

    def forward(self, batch: TaskBatch) -> Float[Tensor, "b q y"]:
        """Logits of the query rows in the training layout of the strategy.

        Raises:
            DataError: The batch has no query row, or none of context.
        """
        return self.train_pass(batch)[0]

    def train_pass(
        self, batch: TaskBatch, initial: Sequence[LayerState] | None = None
    ) -> tuple[Float[Tensor, "b q y"], tuple[LayerState, ...]]:
        """What `forward` returns, and the state of every layer after all that was written.

        Args:
            batch: Tasks to train on.
            initial: States to start the context from; zero if left out.

        Raises:
            DataError: The batch has no query row, or none of context.
        """
        num_context = batch.num_context
        if not 1 <= num_context < batch.x.shape[1]:
            raise DataError(
                f"num_context={num_context} of {batch.x.shape[1]} rows leaves no context or no "
                "query row; training needs at least one of each."
            )
        context = slice(None), slice(None, num_context)
        statistics = self._statistics(batch.x[context], batch.y[context], batch.categorical)
        num_columns = batch.x.shape[2]
        num_cells = self.embedding.num_cells(num_columns)
        tokens = self.strategy.training_tokens(
            self.embedding.rows(standardise(batch.x, statistics)),
            self.embedding.labels(batch.y.to(batch.x.dtype), num_columns),
            self._placeholder(statistics),
            num_context=num_context,
        )
        context_outputs, layers = self.backbone.fit(tokens.context, initial, num_cells=num_cells)
        query_outputs = tokens.queries
        if query_outputs.shape[1]:
            query_outputs = self.backbone.predict(query_outputs, layers, num_cells=num_cells)
        hidden = self.strategy.predictions(context_outputs, query_outputs, num_context=num_context)
        return self.head(self.embedding.outputs(hidden, num_columns)), layers

    def _statistics(self, x: Tensor, y: Tensor, categorical: Tensor | None) -> ContextStatistics:
        self.embedding.check(x.shape[2])
        if categorical is None:
            categorical = torch.zeros(x.shape[0], x.shape[2], dtype=torch.bool, device=x.device)
        num_features = self.architecture.num_features if self.embedding.scales_rows else None
        return context_statistics(x, y, categorical, num_features=num_features)

    def _placeholder(self, statistics: ContextStatistics) -> Float[Tensor, "g 1 d"]:
        return self.embedding.labels(statistics.mean_label[:, None], statistics.fill.shape[1])

    def _check_context(
        self, x: Tensor, y: Tensor, categorical: Tensor | None, state: InContextState | None
    ) -> None:
        if x.shape[:2] != y.shape or x.shape[1] == 0:
            raise DataError(
                f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; expected [tasks, rows, "
                "columns] and [tasks, rows] with at least one row."
            )
        if int(y.min()) < 0 or int(y.max()) >= self.architecture.num_classes:
            raise DataError(
                f"Labels lie between {int(y.min())} and {int(y.max())}; this model takes class "
                f"indices 0 to {self.architecture.num_classes - 1}."
            )
        if state is None:
            return
        if not self.is_causal:
            raise UnsupportedReadout(
                "A fitted state can be extended only where every layer reads causally: here "
                "context tokens also read rows written after them, so earlier rows would have to "
                "be read again. Fit all rows at once, or use tabicl_linear.readouts.Causal."
            )
        if categorical is not None or state.statistics.fill.shape != (x.shape[0], x.shape[2]):
            raise DataError(
                f"A state is extended under its own statistics: leave `categorical` out and give "
                f"x [{', '.join(map(str, state.statistics.fill.shape))}] tasks and columns, got "
                f"{x.shape[0]} and {x.shape[2]}."
            )
