"""One token for each group of columns of a row, and one for its label: two-axis processing."""

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.embedding.base import Embedding
from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Float, Tensor


class CellEmbedding(Embedding):
    """Cells of `features_per_group` columns and a label cell at the end (appendix D.9).

    All groups share one projection and carry no position: permuting them changes nothing. The
    label cell holds psi_y alone, and the head reads it.

    Args:
        num_features: Most columns of a table.
        dim: Width of a token.
        features_per_group: Columns of a cell; the last cell is padded with zeros.
    """

    scales_rows = False

    def __init__(self, num_features: int, dim: int, *, features_per_group: int) -> None:
        super().__init__()
        if features_per_group < 1:
            raise ConfigError(f"features_per_group={features_per_group} must be at least 1.")
        self.num_features = num_features
        self.features_per_group = features_per_group
        self.feature_projection = nn.Linear(features_per_group, dim)
        self.label_projection = nn.Linear(1, dim)

    def num_cells(self, num_columns: int) -> int:
        """Groups of columns, and the label."""
        return -(-num_columns // self.features_per_group) + 1

    def rows(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "g n d"]:
        """Tokens of the groups; zero for the label cell."""
        x = F.pad(x, (0, -x.shape[-1] % self.features_per_group))
        groups = x.unflatten(-1, (-1, self.features_per_group)).transpose(1, 2)
        cells = self.feature_projection(groups)
        return F.pad(cells, (0, 0, 0, 0, 0, 1)).flatten(0, 1)

    def labels(self, y: Float[Tensor, "b n"], num_columns: int) -> Float[Tensor, "g n d"]:
        """Tokens of the label cells; zero for the groups."""
        cells = self.label_projection(y.unsqueeze(-1)).unsqueeze(1)
        empty = cells.new_zeros(1).expand(
            cells.shape[0], self.num_cells(num_columns) - 1, *cells.shape[2:]
        )
        return torch.cat([empty, cells], dim=1).flatten(0, 1)

    def outputs(self, hidden: Float[Tensor, "g n d"], num_columns: int) -> Float[Tensor, "b n d"]:
        """The label cell of each row."""
        return hidden.unflatten(0, (-1, self.num_cells(num_columns)))[:, -1]
