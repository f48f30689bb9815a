"""The shape of the network, and the parts that follow from it alone."""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn

from tabicl_linear.backbone.two_axis import CellAttention
from tabicl_linear.embedding.base import Embedding
from tabicl_linear.embedding.cell_embedding import CellEmbedding
from tabicl_linear.embedding.row_embedding import RowEmbedding
from tabicl_linear.errors import ConfigError
from tabicl_linear.nn.feed_forward import MLP, SwiGLU
from tabicl_linear.nn.norms import RMSNorm

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
        two_axis: One token per group of columns, with softmax attention across the groups before
            every second layer (appendix D.9), instead of one token per row.
        features_per_group: Columns of a group where `two_axis` is set.
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
    two_axis: bool = False
    features_per_group: int = 2

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

    def make_embedding(self) -> Embedding:
        """Tokens from cells and labels."""
        if self.two_axis:
            return CellEmbedding(
                self.num_features, self.dim, features_per_group=self.features_per_group
            )
        return RowEmbedding(self.num_features, self.dim)

    def make_cell_attention(self) -> list[CellAttention]:
        """Attention across cells, for every second layer; none with one token per row."""
        count = (self.depth + 1) // 2 if self.two_axis else 0
        return [CellAttention(self.dim, self.num_heads, self.make_norm()) for _ in range(count)]

    def make_norm(self) -> nn.Module:
        """A norm over tokens."""
        if self.norm == "pre_rms":
            return RMSNorm(self.dim, eps=self.norm_eps)
        return nn.LayerNorm(self.dim, eps=self.norm_eps, elementwise_affine=False)

    def make_feed_forward(self) -> nn.Module | None:
        """The token-wise layer of a block."""
        if self.feed_forward == "none":
            return None
        layer = SwiGLU if self.feed_forward == "swiglu" else MLP
        return layer(self.dim, self.hidden_dim)
