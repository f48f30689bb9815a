"""Norms."""

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.types import Float, Tensor


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) times a learned weight, computed in the precision of the weight.

    Unlike torch's, it takes what autocast has lowered without a warning and without losing
    precision.
    """

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... e"]) -> Float[Tensor, "... e"]:
        """Normalise the last dimension."""
        return F.rms_norm(x.to(self.weight.dtype), self.weight.shape, self.weight, self.eps)
