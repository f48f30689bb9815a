"""Mamba-2."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.rule import at_least_float32
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.nn.gates import draw_step_bias, draw_step_rates
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.nn.short_conv import ShortConvolution
from tabicl_linear.types import Float, Int, Tensor


class Mamba2(SequenceMixer):
    """S_t = exp(A dt_t) S_{t-1} + dt_t x_t B_t^T, read as S_t C_t + D x_t (appendix B.1).

    The state-space dual form: x are the values, B the keys and C the queries, where B and C are
    shared by all heads; dt = softplus(w x + b) is the write rate, and A < 0 one number per head. x,
    B and C pass through a short convolution, which most other models do not have, and silu. The
    output is gated by silu(z) before its norm. A block has no feed-forward layer.

    Args:
        dim: Width of a token.
        num_heads: Ignored; the architecture passes it, but heads follow from the widths below.
        state_dim: Width of B and C.
        head_dim: Width of a head of x.
        expand: Width of all heads relative to `dim`.
        conv_size: Window of the short convolution.
        num_layers: The initial output projection is scaled by 1 / sqrt(num_layers); if None, by
            the depth of the model.
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        state_dim: int = 96,
        head_dim: int = 64,
        expand: int = 2,
        conv_size: int = 4,
        num_layers: int | None = None,
        norm_eps: float = 1e-6,
    ) -> None:
        inner = expand * dim
        if inner % head_dim:
            raise ConfigError(
                f"Mamba2: expand * dim = {inner} is not a multiple of head_dim={head_dim}; "
                "set init_args.head_dim to a divisor."
            )
        super().__init__(AdditiveRule(), (inner // head_dim, head_dim, state_dim))
        self.inner, self.head_dim, self.state_dim = inner, head_dim, state_dim
        self.gate = nn.Linear(dim, self.inner, bias=False)
        self.xbc = nn.Linear(dim, self.inner + 2 * state_dim, bias=False)
        self.conv = ShortConvolution(self.inner + 2 * state_dim, conv_size, bias=True)
        self.step = nn.Linear(dim, self.num_heads, bias=False)
        self.norm = RMSNorm(self.inner, eps=norm_eps)
        self.out = nn.Linear(self.inner, dim, bias=False)
        initialise_(self)
        self.log_rate = nn.Parameter(draw_step_rates(self.num_heads))
        self.step_bias = nn.Parameter(draw_step_bias(self.num_heads))
        self.skip = nn.Parameter(torch.ones(self.num_heads))
        self._num_layers = num_layers

    def initialise_for_(self, depth: int) -> None:
        """Draw the output projection, with a scale that decreases with the depth of the model."""
        bound = 1 / math.sqrt(self.inner * (self._num_layers or depth))
        nn.init.uniform_(self.out.weight, -bound, bound)

    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """C as queries, B as keys, x as values, dt as write rates and A dt as log gates."""
        xbc, conv_inputs = self.conv.project(x, self.xbc, conv_inputs, independent=independent)
        xbc = F.silu(xbc)
        values, keys, queries = xbc.split([self.inner, self.state_dim, self.state_dim], dim=-1)
        shape = (*x.shape[:2], self.num_heads, self.state_dim)
        dt = F.softplus(at_least_float32(self.step(x)) + self.step_bias)
        streams = Streams(
            q=queries.unsqueeze(2).expand(shape),
            k=keys.unsqueeze(2).expand(shape),
            v=values.unflatten(-1, (self.num_heads, self.head_dim)),
            beta=dt,
            log_decay=(-self.log_rate.exp() * dt).unsqueeze(-1),
        )
        return streams, conv_inputs

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Add the skip connection D x; gate, norm over all channels, output projection."""
        y = (heads + self.skip[:, None].to(heads.dtype) * streams.v).flatten(-2)
        return self.out(self.norm(y * F.silu(self.gate(x))))
