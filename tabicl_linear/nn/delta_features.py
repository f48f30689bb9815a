"""Queries, keys and values of delta rules."""

from torch import nn

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.nn.tokenwise import delta_features
from tabicl_linear.types import Float, Tensor


class DeltaFeatures(nn.Module):
    """silu of queries, keys and values; unit norm of queries and keys, queries scaled by k^-0.5."""

    def forward(
        self, qkv: Float[Tensor, "... 3 h k"]
    ) -> tuple[Float[Tensor, "... h k"], Float[Tensor, "... h k"], Float[Tensor, "... h k"]]:
        """Queries, keys (both in at least float32) and values."""
        return chosen(delta_features)(qkv)
