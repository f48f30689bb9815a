"""Token-wise functions between the matrix products, which a backend may replace."""

import torch
import torch.nn.functional as F

from tabicl_linear.nn.feature_maps import unit_norm
from tabicl_linear.types import Float, Tensor


def rms_norm(
    x: Float[Tensor, "... e"], weight: Float[Tensor, " e"], eps: float
) -> Float[Tensor, "... e"]:
    """x / sqrt(mean(x^2) + eps) times the weight, in the dtype of the weight.

    Computed in the wider dtype of the two: reads of a state are float32 even in a 16-bit model.
    """
    dtype = torch.promote_types(x.dtype, weight.dtype)
    return F.rms_norm(x.to(dtype), weight.shape, weight.to(dtype), eps).to(weight.dtype)


def swiglu(gate_and_up: Float[Tensor, "... f"]) -> Float[Tensor, "... e"]:
    """silu of the first half of the channels, times the second."""
    gate, up = gate_and_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def delta_features(
    qkv: Float[Tensor, "... 3 h k"],
) -> tuple[Float[Tensor, "... h k"], Float[Tensor, "... h k"], Float[Tensor, "... h k"]]:
    """Queries, keys and values of a delta rule: silu of all, unit norm of queries and keys.

    Queries are scaled by k^-0.5 as well. Queries and keys have at least float32.
    """
    q, k, v = F.silu(qkv).unbind(-3)
    return unit_norm(q) * q.shape[-1] ** -0.5, unit_norm(k), v
