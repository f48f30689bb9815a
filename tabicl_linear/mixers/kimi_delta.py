"""Kimi Delta Attention."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import at_least_float32
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim
from tabicl_linear.nn.delta_features import DeltaFeatures
from tabicl_linear.nn.gates import WriteRate, draw_step_bias
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.nn.short_conv import ShortConvolution, project
from tabicl_linear.types import Float, Int, Tensor


class KimiDelta(SequenceMixer):
    """S_t = S_{t-1} Diag(alpha_t) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T (arXiv:2510.26692).

    The gated delta rule with one gate per key channel, alpha_t = exp(-exp(A) softplus(W2 W1 x_t +
    b)), where A is a number per head. It is not in the paper. Queries, keys and values pass through
    silu. Queries and keys have unit norm, and queries are scaled by key_dim^-0.5. The state starts
    at zero and is float32. Outputs pass through a norm per head and a gate sigmoid(W2 W1 x_t + b).

    Gates are initialised as in our Gated DeltaNet (as in Mamba-2), so most channels forget little.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim`.
        decay_constant: c of the write-rate decay c / (t + c), in tokens; None for no decay.
        gate_rank: Rank of the projections of both gates; None for the width of a head.
        conv_size: Window of the short convolution over projected tokens; None for none.
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        decay_constant: float | int | None = None,
        gate_rank: int | None = None,
        conv_size: int | None = None,
        norm_eps: float = 1e-6,
    ) -> None:
        width = head_dim(dim, num_heads)
        super().__init__(DeltaRule(), (num_heads, width, width))
        self.head_dim = width
        rank = self.head_dim if gate_rank is None else gate_rank
        if rank < 1:
            raise ConfigError(f"gate_rank={gate_rank} must leave at least one channel.")
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.conv = None if conv_size is None else ShortConvolution(3 * dim, conv_size)
        self.features = DeltaFeatures()
        self.write_rate = WriteRate(dim, num_heads, decay_constant)
        self.forget = _low_rank(dim, rank)
        # Rates start at one or more, as a channel with a smaller one could hardly forget.
        self.log_rate = nn.Parameter(torch.empty(num_heads).uniform_(0, math.log(16)))
        self.gate = _low_rank(dim, rank)
        self.norm = RMSNorm(self.head_dim, eps=norm_eps)
        self.out = nn.Linear(dim, dim, bias=False)
        initialise_(self)
        *_, last = self.forget
        assert isinstance(last, nn.Linear)
        last.bias = nn.Parameter(draw_step_bias(dim))

    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """Unit-norm queries and keys, values, write rates and log gates."""
        qkv, conv_inputs = project(self.conv, x, self.qkv, conv_inputs, independent=independent)
        q, k, v = self.features(qkv.unflatten(-1, (3, self.num_heads, self.head_dim)))
        steps = F.softplus(at_least_float32(self.forget(x)))
        log_decay = -self.log_rate.exp().unsqueeze(-1) * steps.unflatten(-1, (self.num_heads, -1))
        streams = Streams(q=q, k=k, v=v, beta=self.write_rate(x, positions), log_decay=log_decay)
        return streams, conv_inputs

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Norm per head, output gate, output projection."""
        return self.out(self.norm(heads).flatten(-2) * self.gate(x).sigmoid())


def _low_rank(dim: int, rank: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, rank, bias=False), nn.Linear(rank, dim))
