"""Several tokens per row, one for each group of columns, for two-axis processing."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.embedding.base import Embedding
from tabicl_linear.embedding.codes import Codes
from tabicl_linear.embedding.constants import constants
from tabicl_linear.embedding.values import value_features
from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Float, Tensor

HeadReads = Literal["label_cell", "mean"]


@dataclass(frozen=True)
class Groups:
    """The columns of each cell.

    Attributes:
        size: Columns of a cell without `offsets`; the last cell is padded with zeros.
        offsets: Cell i holds the columns i * stride + offset, counted cyclically, for each offset.
            A column can so be in several cells, each time with other columns (repeated feature
            grouping).
        stride: Distance between the first columns of consecutive cells.
    """

    size: int = 2
    offsets: tuple[int, ...] | None = None
    stride: int = 2

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"cells.columns={self.size} must be at least 1.")
        if self.offsets is None:
            return
        if self.stride < 1:
            raise ConfigError(f"cells.stride={self.stride} must be at least 1.")
        distinct = set(self.offsets)
        if len(distinct) < len(self.offsets) or not set(range(self.stride)) <= distinct:
            raise ConfigError(
                f"cells.offsets={list(self.offsets)} with stride={self.stride} would repeat a "
                f"column in a cell or leave columns out: give distinct offsets, "
                f"{', '.join(map(str, range(self.stride)))} among them."
            )

    @property
    def width(self) -> int:
        """Number of columns in a cell."""
        return self.size if self.offsets is None else len(self.offsets)

    def count(self, num_columns: int) -> int:
        """Number of cells of a row of a table."""
        return -(-num_columns // (self.size if self.offsets is None else self.stride))

    def of(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "b i n w"]:
        """The values of every cell i."""
        if self.offsets is None:
            padded = F.pad(x, (0, -x.shape[-1] % self.size))
            return padded.unflatten(-1, (-1, self.size)).transpose(1, 2)
        first = self.stride * torch.arange(self.count(x.shape[-1]), device=x.device)
        columns = first[:, None] + constants(tuple(self.offsets), first)
        return x[..., columns % x.shape[-1]].transpose(1, 2)


class CellEmbedding(Embedding):
    """Cells of several columns each, and a last cell for the label (appendix D.9).

    All cells share one projection and have no positional encoding. The label cell holds only psi_y,
    and the head reads it. If the head reads the mean of the cells instead, there is no label cell,
    and psi_y is added to every cell.

    Args:
        num_features: Maximum number of columns of a table.
        dim: Width of a token.
        codes: Codes of values and labels.
        groups: The columns of each cell.
        label_in_every_cell: Whether psi_y is added to every cell.
        head_reads: Whether the head reads the label cell or the mean of all cells.
    """

    scales_rows = False

    def __init__(
        self,
        num_features: int,
        dim: int,
        codes: Codes,
        *,
        groups: Groups,
        label_in_every_cell: bool = False,
        head_reads: HeadReads = "label_cell",
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.codes = codes
        self.groups = groups
        self.label_in_every_cell = label_in_every_cell
        self.has_label_cell = head_reads == "label_cell"
        if not (self.has_label_cell or label_in_every_cell):
            raise ConfigError(
                "head_reads='mean' leaves the label cell out, so that labels would not be written: "
                "set label_in_every_cell to true."
            )
        self.feature_projection = nn.Linear(groups.width * codes.features_per_value, dim)
        self.label_projection = codes.make_labels(dim)

    def num_cells(self, num_columns: int) -> int:
        """Number of groups of columns, plus one if the label has a cell of its own."""
        return self.groups.count(num_columns) + self.has_label_cell

    def rows(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "g n d"]:
        """The tokens of the groups, and zero for the label cell."""
        cells = self.feature_projection(value_features(self.groups.of(x), self.codes.value))
        return F.pad(cells, (0, 0, 0, 0, 0, self.has_label_cell)).flatten(0, 1)

    def label_tokens(
        self, vectors: Float[Tensor, "b n d"], num_columns: int
    ) -> Float[Tensor, "g n d"]:
        """The vectors in every cell, or in the label cell only, with zeros in the others."""
        num_cells, cells = self.num_cells(num_columns), vectors.unsqueeze(1)
        if self.label_in_every_cell:
            return cells.expand(-1, num_cells, -1, -1).flatten(0, 1)
        empty = cells.new_zeros(1).expand(len(cells), num_cells - 1, *cells.shape[2:])
        return torch.cat([empty, cells], dim=1).flatten(0, 1)

    def outputs(self, hidden: Float[Tensor, "g n d"], num_columns: int) -> Float[Tensor, "b n d"]:
        """The vector of each row that the head reads."""
        cells = hidden.unflatten(0, (-1, self.num_cells(num_columns)))
        return cells[:, -1] if self.has_label_cell else cells.mean(1)
