"""Groups of options of a network, other than its sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from tabicl_linear.embedding.cell_embedding import HeadReads
from tabicl_linear.embedding.labels import LabelCode
from tabicl_linear.embedding.values import ValueCode
from tabicl_linear.errors import ConfigError

FeedForward = Literal["swiglu", "gelu", "none"]
Norm = Literal["pre_rms", "post_layer"]
Options = TypeVar("Options")


@dataclass(frozen=True)
class Blocks:
    """Norms and feed-forward layers around the mixers.

    Attributes:
        feed_forward: Token-wise layer of a block: swiglu, gelu or none.
        norm: pre_rms: RMSNorm before each sublayer. post_layer: LayerNorm without weights after
            each sublayer.
        norm_eps: Epsilon of the norms.
        final_norm: Whether a norm follows the last block.
    """

    feed_forward: FeedForward = "swiglu"
    norm: Norm = "pre_rms"
    norm_eps: float = 1e-6
    final_norm: bool = True

    def __post_init__(self) -> None:
        check_choice("architecture.blocks.feed_forward", self.feed_forward, FeedForward)
        check_choice("architecture.blocks.norm", self.norm, Norm)


@dataclass(frozen=True)
class CodeOptions:
    """How values and labels become tokens.

    Attributes:
        labels: scalar: psi_y is linear in the class index. one_hot: a learned vector for each
            class and one for the unknown label.
        values: linear: psi_x is linear in the values. fourier: also in their sines and cosines at
            a few frequencies.
    """

    labels: LabelCode = "scalar"
    values: ValueCode = "linear"

    def __post_init__(self) -> None:
        check_choice("architecture.codes.labels", self.labels, LabelCode)
        check_choice("architecture.codes.values", self.values, ValueCode)


@dataclass(frozen=True)
class Cells:
    """One token per group of columns, with softmax attention across the groups of a row.

    Attributes:
        columns: Number of columns of a group, without `offsets`.
        offsets: For groups that share columns: group i holds the columns i * stride + offset,
            counted cyclically, for each offset.
        stride: Distance between the first columns of consecutive groups, with `offsets`.
        label_in_every_cell: Add psi_y to the token of every group.
        head_reads: label_cell: a separate token for the label. mean: the mean of the groups'
            tokens, without such a token.
        attention_every: Number of layers from one attention across the groups to the next; the
            first comes before the first layer.
    """

    columns: int = 2
    offsets: tuple[int, ...] | None = None
    stride: int = 2
    label_in_every_cell: bool = False
    head_reads: HeadReads = "label_cell"
    attention_every: int = 2

    def __post_init__(self) -> None:
        check_choice("architecture.cells.head_reads", self.head_reads, HeadReads)
        if self.attention_every < 1:
            raise ConfigError(
                f"architecture.cells.attention_every={self.attention_every} must be at least 1."
            )
        if self.offsets is None:
            if self.stride != Cells.stride:
                raise ConfigError(
                    f"architecture.cells.stride={self.stride} is the distance between groups that "
                    "offsets describes: give those, or leave stride out."
                )
            return
        if self.columns != Cells.columns:
            raise ConfigError(
                f"architecture.cells.columns={self.columns} and offsets both determine the columns "
                "of a group: leave one out."
            )
        if not isinstance(self.offsets, Sequence) or not all(
            type(offset) is int and offset >= 0 for offset in self.offsets
        ):
            raise ConfigError(
                f"architecture.cells.offsets={self.offsets!r}: give a list of whole numbers from "
                "0, such as [0, 1, 3]."
            )
        object.__setattr__(self, "offsets", tuple(self.offsets))  # a file holds a list


def check_choice(key: str, value: object, choices: Any) -> None:
    """Check that a value is one of a `Literal`.

    Args:
        key: Dotted name of the option, for the message.
        value: The value.
        choices: The `Literal`.

    Raises:
        ConfigError: The value is not one of the choices.
    """
    if value not in get_args(choices):
        raise ConfigError(f"{key}={value!r} must be one of {get_args(choices)}.")


def group(key: str, kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Make a group of options from a mapping, as in files; `key` is its name for the message.

    Raises:
        ConfigError: An option does not exist, or a value is out of range.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ConfigError(f"{key} has no {', '.join(unknown)}; it has {', '.join(names)}.")
    return kind(**values)
