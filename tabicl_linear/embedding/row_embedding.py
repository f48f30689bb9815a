"""One token for each row."""

import torch.nn.functional as F
from torch import nn

from tabicl_linear.embedding.base import Embedding
from tabicl_linear.types import Float, Tensor


class RowEmbedding(Embedding):
    """psi_x(x) = W x + b on rows padded with zeros, psi_y(y) = w y + b (section 3.2).

    Args:
        num_features: Columns that rows are padded to.
        dim: Width of a token.
    """

    scales_rows = True

    def __init__(self, num_features: int, dim: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.feature_projection = nn.Linear(num_features, dim)
        self.label_projection = nn.Linear(1, dim)

    def num_cells(self, num_columns: int) -> int:
        """One: the row itself."""
        return 1

    def rows(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "g n d"]:
        """One token per row."""
        return self.feature_projection(F.pad(x, (0, self.num_features - x.shape[-1])))

    def labels(self, y: Float[Tensor, "b n"], num_columns: int) -> Float[Tensor, "g n d"]:
        """One token per label."""
        return self.label_projection(y.unsqueeze(-1))

    def outputs(self, hidden: Float[Tensor, "g n d"], num_columns: int) -> Float[Tensor, "b n d"]:
        """The token of the row."""
        return hidden
