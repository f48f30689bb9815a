"""Linear attention."""

import torch.nn.functional as F
from torch import nn

from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim
from tabicl_linear.nn.feature_maps import elu_plus_one
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.types import Float, Int, Tensor


class LinearAttention(SequenceMixer):
    """S_t = S_{t-1} + v_t phi(k_t)^T, read as S phi(q), with phi = elu + 1 (Equation 2, Z = 1).

    Queries are scaled by key_dim^-0.5 after the feature map. The state starts at zero and is
    float32. Outputs pass through a norm per head, which replaces the normaliser Z.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim`.
        normalise: Divide by Z_i = sum_j phi(q_i) phi(k_j) as in Equation 2. Z is computed as the
            read of an additional value channel of ones.
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self, dim: int, num_heads: int, *, normalise: bool = False, norm_eps: float = 1e-5
    ) -> None:
        width = head_dim(dim, num_heads)
        rule = AdditiveRule(state_norms="none" if normalise else "prefix")
        super().__init__(rule, (num_heads, width + normalise, width))
        self.head_dim = width
        self.normalise = normalise
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.norm = RMSNorm(self.head_dim, eps=norm_eps)
        self.out = nn.Linear(dim, dim, bias=False)
        initialise_(self)

    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """Feature-mapped queries and keys, and values."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(-3)
        if self.normalise:
            v = F.pad(v, (0, 1), value=1.0)
        return Streams(elu_plus_one(q) * self.head_dim**-0.5, elu_plus_one(k), v), None

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Norm per head, then the output projection."""
        if self.normalise:
            heads = heads[..., :-1] / (heads[..., -1:] + Z_EPS)
        return self.out(self.norm(heads).flatten(-2))


Z_EPS = 1e-6
"""Keeps the division by Z finite; Z > 0 since the feature map is positive."""
