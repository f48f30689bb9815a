"""Attention across the cells of a row, between mixers that run across rows."""

from torch import nn

from tabicl_linear.kernels.cell_attention import attend_across_cells
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.mixers.base import head_dim
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.types import Float, Tensor


class CellAttention(nn.Module):
    """x + softmax attention of every cell to all cells of its own row (appendix D.9).

    The cells of a row are consecutive in the batch. Rows do not see each other here, so this does
    not affect the split into tokens that are written and tokens that only read.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim`.
        norm: Norm of the input.
    """

    def __init__(self, dim: int, num_heads: int, norm: nn.Module) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim(dim, num_heads)
        self.norm = norm
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        initialise_(self)

    def forward(self, x: Float[Tensor, "g t d"], num_cells: int) -> Float[Tensor, "g t d"]:
        """Mix the cells of every token position."""
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.num_heads, self.head_dim))
        heads = chosen(attend_across_cells)(qkv, num_cells)
        return x + self.out(heads.flatten(-2))
