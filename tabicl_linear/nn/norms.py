"""Norms."""

import torch
from torch import nn

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.nn.tokenwise import rms_norm
from tabicl_linear.types import Float, Tensor


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) times a learned weight, in at least the precision of the weight.

    Unlike PyTorch's layer, it accepts inputs that autocast has converted to 16 bits, without a
    warning or a loss of precision.
    """

    def __init__(self, dim: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... e"]) -> Float[Tensor, "... e"]:
        """Normalise the last dimension."""
        return chosen(rms_norm)(x, self.weight, self.eps)
