"""Replaces the Frobenius norm of a state by a learned scale."""

import torch
from torch import nn

from tabicl_linear.types import Float, Tensor

EPS = 1e-5


class StateNorm(nn.Module):
    """alpha_h sqrt(d_v) / max(|S|_F, eps), alpha_h = exp(learned), starting at one (section 4.3).

    Reads are linear in the state, so a read of the normalised state is the read times this factor.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(num_heads))

    def forward(self, square: Float[Tensor, "b t h"], value_dim: int) -> Float[Tensor, "b t h 1"]:
        """Return the factor of reads, from the squared Frobenius norms of the states."""
        # Clamped before the root, whose gradient at zero is infinite: a state may be zero.
        factor = self.log_scale.exp() * value_dim**0.5 * square.clamp(min=EPS**2).rsqrt()
        return factor.unsqueeze(-1)
