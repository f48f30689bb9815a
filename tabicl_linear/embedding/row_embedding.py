"""One token for each row."""

import torch.nn.functional as F
from torch import nn

from tabicl_linear.embedding.base import Embedding
from tabicl_linear.embedding.codes import Codes
from tabicl_linear.embedding.values import value_features
from tabicl_linear.types import Float, Tensor


class RowEmbedding(Embedding):
    """psi_x(x) = W x + b on rows padded with zeros (section 3.2), and psi_y.

    With Fourier features, W applies to these. As they are computed from standardised values, the
    factor sqrt(num_features / columns) applies to the features rather than to the rows.

    Args:
        num_features: Number of columns that rows are padded to.
        dim: Width of a token.
        codes: Codes of values and labels.
    """

    def __init__(self, num_features: int, dim: int, codes: Codes) -> None:
        super().__init__()
        self.num_features = num_features
        self.codes = codes
        self.scales_rows = codes.value == "linear"
        self.feature_projection = nn.Linear(num_features * codes.features_per_value, dim)
        self.label_projection = codes.make_labels(dim)

    def num_cells(self, num_columns: int) -> int:
        """One: the row itself."""
        return 1

    def rows(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "g n d"]:
        """One token per row."""
        features = value_features(F.pad(x, (0, self.num_features - x.shape[-1])), self.codes.value)
        if not self.scales_rows:
            features = features * (self.num_features / x.shape[-1]) ** 0.5
        return self.feature_projection(features)

    def label_tokens(
        self, vectors: Float[Tensor, "b n d"], num_columns: int
    ) -> Float[Tensor, "g n d"]:
        """One token per label."""
        return vectors

    def outputs(self, hidden: Float[Tensor, "g n d"], num_columns: int) -> Float[Tensor, "b n d"]:
        """The token of the row."""
        return hidden
