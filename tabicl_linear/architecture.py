"""The shape of the network, and the modules that depend on nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

from torch import nn

from tabicl_linear.backbone.block import Block
from tabicl_linear.backbone.stack import Backbone
from tabicl_linear.backbone.two_axis import CellAttention
from tabicl_linear.embedding.base import Embedding
from tabicl_linear.embedding.cell_embedding import CellEmbedding, Groups, HeadReads
from tabicl_linear.embedding.codes import Codes
from tabicl_linear.embedding.labels import LabelCode
from tabicl_linear.embedding.row_embedding import RowEmbedding
from tabicl_linear.embedding.values import ValueCode
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.base import MixerFactory
from tabicl_linear.nn.feed_forward import MLP, SwiGLU
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.readouts import ReadoutFactory
from tabicl_linear.ridge_inputs.inputs import RidgeInputs
from tabicl_linear.ridge_inputs.options import RidgeOptions, ridge_options

FeedForward = Literal["swiglu", "gelu", "none"]
Norm = Literal["pre_rms", "post_layer"]
CHOICES = {
    "feed_forward": FeedForward,
    "norm": Norm,
    "label_code": LabelCode,
    "value_code": ValueCode,
    "head_reads": HeadReads,
}
OF_CELLS = (
    "group_offsets",
    "group_stride",
    "label_in_every_cell",
    "head_reads",
    "cell_attention_every",
)
"""Options that concern the cells of a row."""


@dataclass(frozen=True)
class Architecture:
    """Shape of the network; the defaults are the paper's recurrent models (appendix B).

    Attributes:
        dim: Width of a token.
        num_heads: Heads of every mixer.
        depth: Layers.
        num_features: Maximum number of columns of a table; fewer are padded.
        num_classes: Maximum number of classes of a table, which is the number of logits.
        feed_forward: Token-wise layer of a block: swiglu, gelu or none.
        hidden_dim: Width inside the feed-forward layer.
        decoder_dim: Width inside the head.
        norm: pre_rms: RMSNorm before each sublayer. post_layer: LayerNorm without weights after.
        norm_eps: Epsilon of the block norms.
        final_norm: Whether a norm follows the last block.
        weave_states: Start every layer from a learned state plus the final state of the layer
            below (state weaving, section 4.2).
        learn_states: Start every layer from a learned state, the same for all tasks and cells.
        label_code: scalar: psi_y is linear in the class index. one_hot: a learned vector for each
            class and one for the unknown label.
        value_code: linear: psi_x is linear in the values. fourier: also in their sines and cosines
            at a few frequencies.
        mask_absent_classes: Give classes that the context does not have a probability of zero.
        two_axis: One token per group of columns, with softmax attention across the groups before
            every second layer (appendix D.9), instead of one token per row.
        features_per_group: Columns of a group if `two_axis` is set and `group_offsets` is not.
        group_offsets: Groups that share columns, with `two_axis`: group i holds the columns
            i * group_stride + offset, counted cyclically.
        group_stride: See `group_offsets`.
        label_in_every_cell: Add psi_y to the token of every group.
        head_reads: label_cell: a separate token for the label. mean: the mean of the groups'
            tokens, without such a token.
        cell_attention_every: Number of layers from one attention across the groups to the next.
        ridge_inputs: Give the network predictions of ridge regressions that are solved on the
            context in closed form; none if left out.
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
    learn_states: bool = False
    label_code: LabelCode = "scalar"
    value_code: ValueCode = "linear"
    mask_absent_classes: bool = False
    two_axis: bool = False
    features_per_group: int = 2
    group_offsets: tuple[int, ...] | None = None
    group_stride: int = 2
    label_in_every_cell: bool = False
    head_reads: HeadReads = "label_cell"
    cell_attention_every: int = 2
    ridge_inputs: RidgeOptions | None = None

    def __post_init__(self) -> None:
        for name in (
            *("dim", "num_heads", "depth", "num_features", "hidden_dim", "decoder_dim"),
            "cell_attention_every",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"architecture.{name}={getattr(self, name)} must be at least 1.")
        if self.num_classes < 2:
            raise ConfigError(f"architecture.num_classes={self.num_classes} must be at least 2.")
        for name, kind in CHOICES.items():
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(
                    f"architecture.{name}={getattr(self, name)!r} must be one of {get_args(kind)}."
                )
        if self.learn_states and self.weave_states:
            raise ConfigError(
                "architecture.weave_states=true already learns the states that layers start from: "
                "leave learn_states out."
            )
        if isinstance(self.ridge_inputs, Mapping):  # as a file holds it
            object.__setattr__(self, "ridge_inputs", ridge_options(self.ridge_inputs))
        self._check_cells()

    def _check_cells(self) -> None:
        """Refuse cell options that would have no effect; turn a list of offsets into a tuple."""
        defaults = {field.name: field.default for field in fields(self)}
        changed = [name for name in OF_CELLS if getattr(self, name) != defaults[name]]
        if changed and not self.two_axis:
            raise ConfigError(
                f"architecture.{changed[0]}={getattr(self, changed[0])!r} concerns the cells of a "
                f"row: set two_axis to true, or leave {changed[0]} out."
            )
        if self.group_offsets is None:
            if "group_stride" in changed:
                raise ConfigError(
                    f"architecture.group_stride={self.group_stride} is the distance between groups "
                    "that group_offsets describes: give those, or leave group_stride out."
                )
            return
        if self.features_per_group != defaults["features_per_group"]:
            raise ConfigError(
                f"architecture.features_per_group={self.features_per_group} and group_offsets both "
                "determine the columns of a group: leave one out."
            )
        if not isinstance(self.group_offsets, Sequence) or not all(
            type(offset) is int and offset >= 0 for offset in self.group_offsets
        ):
            raise ConfigError(
                f"architecture.group_offsets={self.group_offsets!r}: give a list of whole numbers "
                "from 0, such as [0, 1, 3]."
            )
        object.__setattr__(self, "group_offsets", tuple(self.group_offsets))

    def make_embedding(self) -> Embedding:
        """The module that makes tokens from cells and labels."""
        codes = Codes(self.value_code, self.label_code, self.num_classes)
        if not self.two_axis:
            return RowEmbedding(self.num_features, self.dim, codes)
        return CellEmbedding(
            self.num_features,
            self.dim,
            codes,
            groups=Groups(self.features_per_group, self.group_offsets, self.group_stride),
            label_in_every_cell=self.label_in_every_cell,
            head_reads=self.head_reads,
        )

    def make_head(self) -> nn.Sequential:
        """The layers from a hidden token to logits."""
        head = nn.Sequential(
            nn.Linear(self.dim, self.decoder_dim),
            nn.GELU(),
            nn.Linear(self.decoder_dim, self.num_classes),
        )
        if self.ridge_inputs is not None:  # training starts from the closed form alone
            for parameter in head[-1].parameters():
                nn.init.zeros_(parameter)
        return head

    def make_ridge_inputs(self) -> RidgeInputs | None:
        """Ridge regressions as inputs, or None."""
        if self.ridge_inputs is None:
            return None
        return RidgeInputs(
            self.ridge_inputs,
            num_features=self.num_features,
            num_classes=self.num_classes,
            dim=self.dim,
        )

    def make_backbone(self, mixer: MixerFactory, readout: ReadoutFactory) -> Backbone:
        """Blocks of one mixer and one readout each, and attention across cells between them."""
        return Backbone(
            [self._make_block(mixer, readout) for _ in range(self.depth)],
            self.make_norm() if self.final_norm else None,
            weave_states=self.weave_states,
            learn_states=self.learn_states,
            cell_attention=self.make_cell_attention(),
            cell_attention_every=self.cell_attention_every,
        )

    def _make_block(self, mixer: MixerFactory, readout: ReadoutFactory) -> Block:
        layer = mixer(self.dim, self.num_heads)
        layer.initialise_for_(self.depth)
        return Block(
            layer,
            readout(layer.num_heads),  # a mixer may have its own number of heads (Mamba-2)
            feed_forward=self.make_feed_forward(),
            norms=(self.make_norm(), self.make_norm()),
            norm_first=self.norm == "pre_rms",
        )

    def make_cell_attention(self) -> list[CellAttention]:
        """Attention across cells, first to last; none with one token per row."""
        count = -(-self.depth // self.cell_attention_every) if self.two_axis else 0
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
