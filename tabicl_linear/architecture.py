"""The shape of the network, and the modules that it alone determines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from tabicl_linear.architecture_options import Blocks, Cells, CodeOptions, check_choice, group
from tabicl_linear.backbone.block import Block
from tabicl_linear.backbone.stack import Backbone
from tabicl_linear.backbone.two_axis import CellAttention
from tabicl_linear.embedding.base import Embedding
from tabicl_linear.embedding.cell_embedding import CellEmbedding, Groups
from tabicl_linear.embedding.codes import Codes
from tabicl_linear.embedding.row_embedding import RowEmbedding
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.base import MixerFactory
from tabicl_linear.nn.feed_forward import MLP, SwiGLU
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.readouts import ReadoutFactory
from tabicl_linear.ridge_inputs.inputs import RidgeInputs
from tabicl_linear.ridge_inputs.options import RidgeOptions

InitialStates = Literal["zero", "learned", "woven"]


@dataclass(frozen=True)
class Architecture:
    """Shape of the network; the defaults are the paper's recurrent models (appendix B).

    Attributes:
        dim: Width of a token.
        num_heads: Heads of every mixer.
        depth: Number of layers.
        num_features: Maximum number of columns of a table; fewer are padded.
        num_classes: Maximum number of classes of a table, and number of logits.
        hidden_dim: Width inside the feed-forward layer.
        decoder_dim: Width inside the head.
        blocks: Norms and feed-forward layers around the mixers.
        initial_states: The state that every layer starts from. zero: zero. learned: a learned
            state, the same for all tasks and cells. woven: a learned state plus the final state of
            the layer below (state weaving, section 4.2).
        codes: How values and labels become tokens.
        mask_absent_classes: Give classes that do not occur in the context a probability of zero.
        cells: One token per group of columns, with softmax attention across the groups (two axes,
            appendix D.9); one token per row if left out.
        ridge_inputs: Add predictions of ridge regressions, which are solved on the context in
            closed form, to the inputs and logits; none if left out.
    """

    dim: int = 320
    num_heads: int = 4
    depth: int = 12
    num_features: int = 20
    num_classes: int = 10
    hidden_dim: int = 640
    decoder_dim: int = 512
    blocks: Blocks = field(default_factory=Blocks)
    initial_states: InitialStates = "zero"
    codes: CodeOptions = field(default_factory=CodeOptions)
    mask_absent_classes: bool = False
    cells: Cells | None = None
    ridge_inputs: RidgeOptions | None = None

    def __post_init__(self) -> None:
        for name in ("dim", "num_heads", "depth", "num_features", "hidden_dim", "decoder_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"architecture.{name}={getattr(self, name)} must be at least 1.")
        if self.num_classes < 2:
            raise ConfigError(f"architecture.num_classes={self.num_classes} must be at least 2.")
        check_choice("architecture.initial_states", self.initial_states, InitialStates)
        # In files, groups of options are mappings.
        groups = {
            "architecture.blocks": Blocks,
            "architecture.codes": CodeOptions,
            "architecture.cells": Cells,
            "ridge_inputs": RidgeOptions,
        }
        for key, kind in groups.items():
            name = key.removeprefix("architecture.")
            if isinstance(getattr(self, name), Mapping):
                object.__setattr__(self, name, group(key, kind, getattr(self, name)))

    def make_embedding(self) -> Embedding:
        """The module that makes tokens from cells and labels."""
        codes = Codes(self.codes.values, self.codes.labels, self.num_classes)
        if self.cells is None:
            return RowEmbedding(self.num_features, self.dim, codes)
        return CellEmbedding(
            self.num_features,
            self.dim,
            codes,
            groups=Groups(self.cells.columns, self.cells.offsets, self.cells.stride),
            label_in_every_cell=self.cells.label_in_every_cell,
            head_reads=self.cells.head_reads,
        )

    def make_head(self) -> nn.Sequential:
        """The layers from a hidden token to logits."""
        head = nn.Sequential(
            nn.Linear(self.dim, self.decoder_dim),
            nn.GELU(),
            nn.Linear(self.decoder_dim, self.num_classes),
        )
        if self.ridge_inputs is not None:  # so that training starts from the ridge regressions
            for parameter in head[-1].parameters():
                nn.init.zeros_(parameter)
        return head

    def make_ridge_inputs(self) -> RidgeInputs | None:
        """The ridge regressions; None without them."""
        if self.ridge_inputs is None:
            return None
        return RidgeInputs(
            self.ridge_inputs,
            num_features=self.num_features,
            num_classes=self.num_classes,
            dim=self.dim,
        )

    def make_backbone(self, mixer: MixerFactory, readout: ReadoutFactory) -> Backbone:
        """The blocks, each with a mixer and a readout, and attention across cells between them."""
        return Backbone(
            [self._make_block(mixer, readout) for _ in range(self.depth)],
            self.make_norm() if self.blocks.final_norm else None,
            weave_states=self.initial_states == "woven",
            learn_states=self.initial_states == "learned",
            cell_attention=self.make_cell_attention(),
            cell_attention_every=(self.cells or Cells()).attention_every,
        )

    def _make_block(self, mixer: MixerFactory, readout: ReadoutFactory) -> Block:
        layer = mixer(self.dim, self.num_heads)
        layer.initialise_for_(self.depth)
        return Block(
            layer,
            readout(layer.num_heads),  # a mixer may have its own number of heads (Mamba-2)
            feed_forward=self.make_feed_forward(),
            norms=(self.make_norm(), self.make_norm()),
            norm_first=self.blocks.norm == "pre_rms",
        )

    def make_cell_attention(self) -> list[CellAttention]:
        """The layers of attention across cells, first to last; empty with one token per row."""
        count = 0 if self.cells is None else -(-self.depth // self.cells.attention_every)
        return [CellAttention(self.dim, self.num_heads, self.make_norm()) for _ in range(count)]

    def make_norm(self) -> nn.Module:
        """A norm over tokens."""
        if self.blocks.norm == "pre_rms":
            return RMSNorm(self.dim, eps=self.blocks.norm_eps)
        return nn.LayerNorm(self.dim, eps=self.blocks.norm_eps, elementwise_affine=False)

    def make_feed_forward(self) -> nn.Module | None:
        """The token-wise layer of a block; None if blocks have none."""
        if self.blocks.feed_forward == "none":
            return None
        layer = SwiGLU if self.blocks.feed_forward == "swiglu" else MLP
        return layer(self.dim, self.hidden_dim)
