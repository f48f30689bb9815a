"""Feature maps phi of linear attention, and the norm of delta-rule keys."""

import torch
import torch.nn.functional as F

from tabicl_linear.types import Float, Tensor


def elu_plus_one(x: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    """phi(x) = elu(x) + 1 > 0 (section 2.2)."""
    return F.elu(x) + 1


UNIT_NORM_EPS = 1e-6


def unit_norm(x: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    """x / sqrt(|x|^2 + 1e-6), in at least float32: a delta rule with long keys diverges."""
    x = x if x.dtype == torch.float64 else x.float()
    return x * (x.square().sum(-1, keepdim=True) + UNIT_NORM_EPS).rsqrt()
