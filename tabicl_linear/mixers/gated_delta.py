"""Gated DeltaNet."""

import torch.nn.functional as F
from torch import nn

from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.nn.delta_features import DeltaFeatures
from tabicl_linear.nn.gates import ForgetGate, WriteRate
from tabicl_linear.nn.initialise import initialise_, open_output_gate_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.nn.short_conv import ShortConvolution, project
from tabicl_linear.types import Float, Int, Tensor


class GatedDeltaNet(SequenceMixer):
    """S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T (section 2.2).

    One gate alpha_t = exp(-exp(A) softplus(w x_t + b)) per head. Queries, keys and values pass
    through silu, and queries and keys have unit norm. The state starts at zero and is float32.
    Outputs pass through a norm per head and a silu gate.

    Args:
        dim: Width of a token.
        num_heads: Heads.
        head_dim: Width of a head; independent of `dim`.
        decay_constant: c of the write-rate decay c / (t + c), in tokens; None for no decay.
        conv_size: Window of the short convolution over projected tokens; None for none.
        mimetic: Start with write rates of one half and an open output gate (section 4.2).
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        head_dim: int = 64,
        decay_constant: float | int | None = None,
        conv_size: int | None = None,
        mimetic: bool = False,
        norm_eps: float = 1e-6,
    ) -> None:
        super().__init__(DeltaRule(), (num_heads, head_dim, head_dim))
        self.head_dim = head_dim
        width = num_heads * head_dim
        self.qkv = nn.Linear(dim, 3 * width, bias=False)
        self.conv = None if conv_size is None else ShortConvolution(3 * width, conv_size)
        self.features = DeltaFeatures()
        self.write_rate = WriteRate(dim, num_heads, decay_constant)
        self.forget = ForgetGate(dim, num_heads)
        self.gate = nn.Linear(dim, width, bias=mimetic)
        self.norm = RMSNorm(head_dim, eps=norm_eps)
        self.out = nn.Linear(width, dim, bias=False)
        initialise_(self)
        if mimetic:
            nn.init.zeros_(self.forget.projection.weight)
            nn.init.zeros_(self.write_rate.projection.weight)
            open_output_gate_(self.gate)

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
        beta, log_decay = self.write_rate(x, positions), self.forget(x).unsqueeze(-1)
        return Streams(q, k, v, beta=beta, log_decay=log_decay), conv_inputs

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Norm per head, output gate, output projection."""
        return self.out(self.norm(heads).flatten(-2) * F.silu(self.gate(x)))
