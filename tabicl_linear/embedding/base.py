"""The contract of an embedding: how standardised cells and labels become tokens."""

from abc import ABC, abstractmethod

from torch import nn

from tabicl_linear.embedding.labels import Labels
from tabicl_linear.errors import DataError, counted
from tabicl_linear.types import Float, Int, Tensor


class Embedding(nn.Module, ABC):
    """psi_x and psi_y (section 3.2), with one token per row or one per cell of a row.

    The cells of a row are folded into the batch: `g` is the number of tasks times `num_cells`.
    Strategies and mixers do not see the difference.

    The placeholder of an unknown label is psi_y of the mean context label, as in the authors'
    code; the paper (section 2) describes a learned one, which one-hot labels have.

    Attributes:
        num_features: Maximum number of columns of a table.
        scales_rows: Whether rows are scaled by the share of columns that carry information.
        label_projection: Maps labels to vectors.
    """

    num_features: int
    scales_rows: bool
    label_projection: Labels

    def check(self, num_columns: int) -> None:
        """Raise `DataError` if a table has more columns than the model takes, or none."""
        if not 1 <= num_columns <= self.num_features:
            raise DataError(
                f"The table has {counted(num_columns, 'column')}; this model takes 1 to "
                f"{self.num_features}. Select columns, or ensemble over subsets of them "
                "as TabICLLinearClassifier does."
            )

    def labels(self, y: Int[Tensor, "b n"], num_columns: int) -> Float[Tensor, "g n d"]:
        """psi_y of class indices."""
        return self.label_tokens(self.label_projection.known(y), num_columns)

    def unknown_label(
        self, mean_label: Float[Tensor, " b"], num_columns: int
    ) -> Float[Tensor, "g 1 d"]:
        """The tokens that stand for a label to predict.

        Args:
            mean_label: Mean class index of each context.
            num_columns: Columns of the tables.
        """
        return self.label_tokens(self.label_projection.unknown(mean_label), num_columns)

    @abstractmethod
    def num_cells(self, num_columns: int) -> int:
        """Number of tokens that represent one row."""

    @abstractmethod
    def rows(self, x: Float[Tensor, "b n m"]) -> Float[Tensor, "g n d"]:
        """psi_x of standardised rows."""

    @abstractmethod
    def label_tokens(
        self, vectors: Float[Tensor, "b n d"], num_columns: int
    ) -> Float[Tensor, "g n d"]:
        """The tokens of label vectors."""

    @abstractmethod
    def outputs(self, hidden: Float[Tensor, "g n d"], num_columns: int) -> Float[Tensor, "b n d"]:
        """The one vector of each row that the head classifies."""
