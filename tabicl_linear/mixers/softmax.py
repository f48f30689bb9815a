"""Softmax attention."""

import math

from torch import nn

from tabicl_linear.kernels.softmax import SoftmaxRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim
from tabicl_linear.types import Float, Int, Tensor


class Softmax(SequenceMixer):
    """o = sum_j softmax_j(q k_j / sqrt(key_dim)) v_j: the paper's quadratic reference.

    Its state is the cache of keys and values, which grows with the context. It is initialised like
    the authors' layer: uniform (Xavier-like) projections of queries, keys and values, and a zero
    output projection.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        width = head_dim(dim, num_heads)
        super().__init__(SoftmaxRule(), (num_heads, width, width))
        self.head_dim = width
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        bound = math.sqrt(6 / (num_heads * self.head_dim + dim))
        nn.init.uniform_(self.qkv.weight, -bound, bound)
        nn.init.zeros_(self.out.weight)

    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """Scaled queries, keys and values."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(-3)
        return Streams(q * self.head_dim**-0.5, k, v), None

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """The output projection."""
        # Reads are averages of values, so they can be rounded to their dtype: the model's.
        return self.out(heads.to(streams.v.dtype).flatten(-2))
