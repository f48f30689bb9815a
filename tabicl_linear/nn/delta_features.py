"""Queries, keys and values of delta rules."""

from tabicl_linear.nn.tokenwise import TokenWise
from tabicl_linear.types import Float, Tensor


class DeltaFeatures(TokenWise):
    """silu of queries, keys and values; unit norm of queries and keys, queries scaled by k^-0.5."""

    def forward(
        self, qkv: Float[Tensor, "... 3 h k"]
    ) -> tuple[Float[Tensor, "... h k"], Float[Tensor, "... h k"], Float[Tensor, "... h k"]]:
        """Queries, keys (both in at least float32) and values."""
        return self.kernels.delta_features(qkv)
