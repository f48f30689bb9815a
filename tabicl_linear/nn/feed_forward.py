"""Feed-forward layers of a block."""

import torch.nn.functional as F
from torch import nn

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.nn.tokenwise import swiglu
from tabicl_linear.types import Float, Tensor


class SwiGLU(nn.Module):
    """W3 (silu(W1 x) * W2 x), without biases."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.gate_and_up = nn.Linear(dim, 2 * hidden_dim, bias=False)
        self.down = nn.Linear(hidden_dim, dim, bias=False)
        initialise_(self)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Transform every token by itself."""
        return self.down(chosen(swiglu)(self.gate_and_up(x)))


class MLP(nn.Module):
    """W2 gelu(W1 x), without biases; W2 starts at zero, as in the authors' softmax layers."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden_dim, bias=False)
        self.down = nn.Linear(hidden_dim, dim, bias=False)
        nn.init.zeros_(self.down.weight)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Transform every token by itself."""
        return self.down(F.gelu(self.up(x)))
