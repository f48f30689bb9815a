"""Gates that determine how strongly a token is written and how much is forgotten."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Float, Int, Tensor


class WriteRate(nn.Module):
    """Effective write rate beta_t eta_t per head: beta_t = sigmoid(w x_t), eta_t = c / (t + c).

    The clock t counts the tokens written before this one, so the first token has eta = 1. Without
    a decay constant, eta is always one. Source: section 4.4.
    """

    def __init__(self, dim: int, num_heads: int, decay_constant: float | int | None = None) -> None:
        super().__init__()
        if decay_constant is not None and not decay_constant > 0:
            raise ConfigError(
                f"decay_constant={decay_constant} must be positive; leave it out for no decay."
            )
        self.projection = nn.Linear(dim, num_heads, bias=False)
        self.decay_constant = decay_constant

    def forward(
        self, x: Float[Tensor, "b t d"], positions: Int[Tensor, " t"]
    ) -> Float[Tensor, "b t h"]:
        """Write rates in (0, 1), in at least float32."""
        logits = self.projection(x)
        beta = (logits if logits.dtype == torch.float64 else logits.float()).sigmoid()
        if self.decay_constant is None:
            return beta
        eta = self.decay_constant / (positions.double() + self.decay_constant)
        return beta * eta.to(beta.dtype)[:, None]


class ForgetGate(nn.Module):
    """log alpha_t = -exp(A) softplus(w x_t + b) per head, the gate of Gated DeltaNet.

    Initialised as Mamba's: see `draw_step_rates` and `draw_step_bias`.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.projection = nn.Linear(dim, num_heads, bias=False)
        self.log_rate = nn.Parameter(draw_step_rates(num_heads))
        self.bias = nn.Parameter(draw_step_bias(num_heads))

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t h"]:
        """Log gates, at most zero, in at least float32."""
        logits = self.projection(x)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return -self.log_rate.exp() * F.softplus(logits + self.bias)


def draw_step_rates(num_heads: int) -> Float[Tensor, " h"]:
    """log A with A ~ U(0, 16), the initial decay rates of Mamba-2 and Gated DeltaNet."""
    # Zero can be drawn in float32, and its logarithm would freeze the gate.
    return torch.empty(num_heads).uniform_(0, 16).clamp(min=1e-4).log()


def draw_step_bias(num_heads: int) -> Float[Tensor, " h"]:
    """softplus^-1(dt) with log dt ~ U(log 1e-3, log 1e-1), the initial step sizes of Mamba."""
    dt = torch.empty(num_heads).uniform_(math.log(1e-3), math.log(1e-1)).exp().clamp(min=1e-4)
    return dt + (-torch.expm1(-dt)).log()
