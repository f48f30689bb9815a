"""psi_y: from labels to tokens."""

from torch import nn

from tabicl_linear.types import Float, Tensor


class LabelEmbedding(nn.Module):
    """psi_y(y) = w y + b of the class index as one number.

    The placeholder of an unknown label is psi_y of the mean context label, as in the authors'
    code; the paper (section 2) describes a learned one.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(1, dim)

    def forward(self, y: Float[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        """One token per label."""
        return self.projection(y.unsqueeze(-1))
