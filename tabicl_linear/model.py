"""The in-context model: fit a context, predict queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import nn

from tabicl_linear.backbone.block import Block
from tabicl_linear.backbone.stack import Backbone
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.embedding.features import FeatureEmbedding
from tabicl_linear.embedding.labels import LabelEmbedding
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics, standardise
from tabicl_linear.errors import ConfigError, DataError, UnsupportedReadout
from tabicl_linear.mixers.base import LayerState, MixerFactory
from tabicl_linear.nn.feed_forward import MLP, SwiGLU
from tabicl_linear.readouts import ReadoutFactory
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.types import Bool, Float, Int, Tensor

FeedForward = Literal["swiglu", "gelu", "none"]
Norm = Literal["pre_rms", "post_layer"]


@dataclass(frozen=True)
class Architecture:
    """Shape of the network; the defaults are the paper's recurrent models (appendix B).

    Attributes:
        dim: Width of a token.
        num_heads: Heads of every mixer.
        depth: Layers.
        num_features: Most columns of a table; fewer are padded.
        num_classes: Most classes of a table, the number of logits.
        feed_forward: Token-wise layer of a block: swiglu, gelu or none.
        hidden_dim: Width inside the feed-forward layer.
        decoder_dim: Width inside the head.
        norm: pre_rms: RMSNorm before each sublayer. post_layer: LayerNorm without weights after.
        norm_eps: Epsilon of the block norms.
        final_norm: Whether a norm follows the last block.
        weave_states: Start every layer from a learned state plus the final state of the layer
            below (state weaving, section 4.2).
    """

    dim: int = 320
    num_heads: int = 4
    depth: int = 12
    num_features: int = 20
    num_classes: int = 10
    feed_forward: FeedForward = "swiglu"
    hidden_dim: int = 640
    decoder_dim: int = 512
    norm: Norm = "pre_rms"
    norm_eps: float = 1e-6
    final_norm: bool = True
    weave_states: bool = False

    def __post_init__(self) -> None:
        for name in ("dim", "num_heads", "depth", "num_features", "hidden_dim", "decoder_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"architecture.{name}={getattr(self, name)} must be at least 1.")
        if self.num_classes < 2:
            raise ConfigError(f"architecture.num_classes={self.num_classes} must be at least 2.")
        for name, choices in (("feed_forward", get_args(FeedForward)), ("norm", get_args(Norm))):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"architecture.{name}={getattr(self, name)!r} must be one of {choices}."
                )

    def make_norm(self) -> nn.Module:
        """A norm over tokens."""
        if self.norm == "pre_rms":
            return nn.RMSNorm(self.dim, eps=self.norm_eps)
        return nn.LayerNorm(self.dim, eps=self.norm_eps, elementwise_affine=False)

    def make_feed_forward(self) -> nn.Module | None:
        """The token-wise layer of a block."""
        if self.feed_forward == "none":
            return None
        layer = SwiGLU if self.feed_forward == "swiglu" else MLP
        return layer(self.dim, self.hidden_dim)


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
        self.features = FeatureEmbedding(architecture.num_features, architecture.dim)
        self.labels = LabelEmbedding(architecture.dim)
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
        *,
        strategy: Strategy,
        architecture: Architecture,
    ) -> "InContextModel":
        """Assemble a model, one mixer and one readout per layer.

        Raises:
            ConfigError: Parts that do not fit together.
        """
        blocks = [cls._make_block(mixer, readout, architecture) for _ in range(architecture.depth)]
        final_norm = architecture.make_norm() if architecture.final_norm else None
        backbone = Backbone(blocks, final_norm, weave_states=architecture.weave_states)
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
        rows = self.features(standardise(x, statistics))
        tokens = self.strategy.context_tokens(rows, self.labels(y.to(x.dtype)))
        _, layers = self.backbone.fit(tokens, initial)
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
        rows = self.features(standardise(x, statistics))
        tokens = self.strategy.query_tokens(rows, self._placeholder(statistics))
        return self.head(self.backbone.predict(tokens, state.layers))

    def forward(self, batch: TaskBatch) -> Float[Tensor, "b q y"]:
        """Logits of the query rows in the training layout of the strategy.

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
        rows = self.features(standardise(batch.x, statistics))
        tokens = self.strategy.training_tokens(
            rows,
            self.labels(batch.y.to(batch.x.dtype)),
            self._placeholder(statistics),
            num_context=num_context,
        )
        context_outputs, layers = self.backbone.fit(tokens.context)
        query_outputs = tokens.queries
        if query_outputs.shape[1]:
            query_outputs = self.backbone.predict(query_outputs, layers)
        return self.head(
            self.strategy.predictions(context_outputs, query_outputs, num_context=num_context)
        )

    def _statistics(self, x: Tensor, y: Tensor, categorical: Tensor | None) -> ContextStatistics:
        self.features.check(x.shape[2])
        if categorical is None:
            categorical = torch.zeros(x.shape[0], x.shape[2], dtype=torch.bool, device=x.device)
        return context_statistics(x, y, categorical, num_features=self.architecture.num_features)

    def _placeholder(self, statistics: ContextStatistics) -> Float[Tensor, "b 1 d"]:
        return self.labels(statistics.mean_label[:, None])

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
