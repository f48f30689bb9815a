"""Gates that say how strongly a token is written."""

import torch
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Float, Int, Tensor


class WriteRate(nn.Module):
    """Effective write rate beta_t eta_t per head: beta_t = sigmoid(w x_t), eta_t = c / (t + c).

    The clock t counts the tokens written before this one, so the first token has eta = 1. Without
    a decay constant eta is one everywhere. The type is a contract: diagnostics find write rates by
    hooking modules of this class. Source: section 4.4.
    """

    def __init__(self, dim: int, num_heads: int, decay_constant: float | None = None) -> None:
        super().__init__()
        if decay_constant is not None and not decay_constant > 0:
            raise ConfigError(
                f"decay_constant={decay_constant} must be positive; leave it out for no decay."
            )
        self.projection = nn.Linear(dim, num_heads, bias=False)
        self.decay_constant = decay_constant

    def forward(self, x: Float[Tensor, "b t d"], time: Int[Tensor, " t"]) -> Float[Tensor, "b t h"]:
        """Write rates in (0, 1), in at least float32."""
        logits = self.projection(x)
        beta = (logits if logits.dtype == torch.float64 else logits.float()).sigmoid()
        if self.decay_constant is None:
            return beta
        eta = self.decay_constant / (time.double() + self.decay_constant)
        return beta * eta.to(beta.dtype)[:, None]
