"""Gated linear attention."""

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.rule import at_least_float32
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim
from tabicl_linear.nn.initialise import initialise_, open_decay_gate_, open_output_gate_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.nn.short_conv import ShortConvolution, project
from tabicl_linear.types import Float, Int, Tensor


class GatedLinearAttention(SequenceMixer):
    """S_t = S_{t-1} Diag(alpha_t) + v_t k_t^T, one gate per key channel (section 2.2).

    alpha_t = sigmoid(W2 W1 x_t + b)^(1 / 16) with a low-rank projection. Queries are scaled by
    key_dim^-0.5. There is no feature map, but silu after the short convolution if there is one. The
    state starts at zero and is float32. Outputs pass through a norm per head and a silu gate.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim` and the width of all keys.
        expand_k: Width of all keys relative to `dim`.
        gate_rank: Rank of the gate's projection.
        conv_size: Window of the short convolution over projected tokens; None for none.
        mimetic: Start with gates that keep everything (mimetic initialisation, section 4.2).
        mimetic_learns: Whether gates that start this way can learn to depend on tokens. The
            authors' cannot: both factors of their projection start at zero, so that neither has a
            gradient.
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        expand_k: float = 0.5,
        gate_rank: int = 16,
        conv_size: int | None = None,
        mimetic: bool = False,
        mimetic_learns: bool = False,
        norm_eps: float = 1e-6,
    ) -> None:
        if mimetic_learns and not mimetic:
            raise ConfigError(
                "mimetic_learns applies to gates that start open; set mimetic as well, or leave it "
                "out: other gates learn in any case."
            )
        key_width = int(dim * expand_k)
        if gate_rank < 1 or key_width < 1:
            raise ConfigError(
                f"gate_rank={gate_rank} and expand_k={expand_k} must leave at least one channel."
            )
        value_dim, key_dim = head_dim(dim, num_heads), head_dim(key_width, num_heads)
        super().__init__(AdditiveRule(), (num_heads, value_dim, key_dim))
        self.head_dim, self.key_dim = value_dim, key_dim
        self.qk = nn.Linear(dim, 2 * key_width, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        width = 2 * key_width + dim
        self.conv = None if conv_size is None else ShortConvolution(width, conv_size)
        self.decay = nn.Sequential(
            nn.Linear(dim, gate_rank, bias=False), nn.Linear(gate_rank, key_width)
        )
        self.gate = nn.Linear(dim, dim, bias=mimetic)
        self.norm = RMSNorm(self.head_dim, eps=norm_eps)
        self.out = nn.Linear(dim, dim, bias=False)
        initialise_(self)
        if mimetic:
            open_decay_gate_(self.decay, learns=mimetic_learns)
            open_output_gate_(self.gate)

    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """Scaled queries, keys, values and log gates."""
        qkv, conv_inputs = project(self.conv, x, self._qkv, conv_inputs, independent=independent)
        if self.conv is not None:
            qkv = F.silu(qkv)
        key_width = self.num_heads * self.key_dim
        q, k, v = qkv.split([key_width, key_width, self.num_heads * self.head_dim], dim=-1)
        log_decay = F.logsigmoid(at_least_float32(self.decay(x))) / GATE_NORMALISER
        streams = Streams(
            q=q.unflatten(-1, (self.num_heads, self.key_dim)) * self.key_dim**-0.5,
            k=k.unflatten(-1, (self.num_heads, self.key_dim)),
            v=v.unflatten(-1, (self.num_heads, self.head_dim)),
            log_decay=log_decay.unflatten(-1, (self.num_heads, self.key_dim)),
        )
        return streams, conv_inputs

    def _qkv(self, x: Tensor) -> Tensor:
        return torch.cat([self.qk(x), self.value(x)], dim=-1)

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Norm per head, output gate, output projection."""
        return self.out(self.norm(heads).flatten(-2) * F.silu(self.gate(x)))


GATE_NORMALISER = 16
"""The gate's logarithm is divided by this, so that gates start close to one."""
