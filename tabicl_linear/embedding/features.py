"""psi_x: from standardised cells to row tokens."""

import torch.nn.functional as F
from torch import nn

from tabicl_linear.errors import DataError
from tabicl_linear.types import Float, Tensor


class FeatureEmbedding(nn.Module):
    """psi_x(x) = W x + b on rows padded with zeros to `num_features` columns (appendix B.2)."""

    def __init__(self, num_features: int, dim: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.projection = nn.Linear(num_features, dim)

    def check(self, num_columns: int) -> None:
        """Raise `DataError` where a table does not fit."""
        if not 1 <= num_columns <= self.num_features:
            raise DataError(
                f"The table has {num_columns} columns; this model takes 1 to {self.num_features}. "
                "Select columns, or ensemble over subsets of them as TabICLLinearClassifier does."
            )

    def forward(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "b n d"]:
        """One token per row."""
        return self.projection(F.pad(x, (0, self.num_features - x.shape[-1])))
