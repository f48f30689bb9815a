"""Softmax attention as an update rule whose memory grows by one key and one value per token."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from tabicl_linear.kernels.memory import CacheMemory, Memory
from tabicl_linear.kernels.rule import UpdateRule, at_least_float32
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Bool, Float, Tensor

QUERY_BLOCK = 256
"""Queries whose scores or mask are held together where no fused kernel takes them one by one."""


@dataclass(frozen=True)
class SoftmaxRule(UpdateRule):
    """o_i = sum_j softmax_j(q_i k_j) v_j over the tokens in memory.

    The memory is the cache of keys and values in their own dtype: a read needs all of it, so
    unlike the recurrent rules its size and the cost of a read grow with the context. The final
    memory is a set: reads do not depend on the order of its tokens.
    """

    has_matrix_memory: ClassVar[bool] = False

    def scan(
        self, x: Streams, memory: Memory | None = None
    ) -> tuple[Float[Tensor, "b t h v"], CacheMemory]:
        """Causal attention; tokens already in memory come before all others."""
        total = self.fold(x, memory)
        length, seen = x.q.shape[1], total.keys.shape[1]
        if length in (0, seen):
            return _attend(x.q, total.keys, total.values, causal=True), total
        # Block by block, so that the mask stays small beside the memory.
        outputs = []
        for start in range(0, length, QUERY_BLOCK):
            q = x.q[:, start : start + QUERY_BLOCK]
            first = seen - length + start
            end = first + q.shape[1]
            mask = torch.ones(q.shape[1], end, dtype=torch.bool, device=q.device).tril(first)
            outputs.append(_attend(q, total.keys[:, :end], total.values[:, :end], mask=mask))
        return torch.cat(outputs, dim=1), total

    def fold(self, x: Streams, memory: Memory | None = None) -> CacheMemory:
        """The memory with the keys and values of all tokens appended."""
        if memory is None:
            return CacheMemory(x.k, x.v)
        assert isinstance(memory, CacheMemory)
        return CacheMemory(
            torch.cat([memory.keys, x.k], dim=1), torch.cat([memory.values, x.v], dim=1)
        )

    def read(self, q: Float[Tensor, "b t h k"], memory: Memory) -> Float[Tensor, "b t h v"]:
        """Attention to everything in memory."""
        assert isinstance(memory, CacheMemory)
        return _attend(q, memory.keys, memory.values)

    def step(self, x: Streams, memory: Memory) -> Float[Tensor, "b t h v"]:
        """Attention to everything in memory and to the token itself."""
        assert isinstance(memory, CacheMemory)
        # Block by block: a query carries the keys of its block along, all but its own masked out.
        blocks = zip(*(z.split(QUERY_BLOCK, dim=1) for z in (x.q, x.k, x.v)), strict=True)
        return torch.cat([_step(q, k, v, memory) for q, k, v in blocks], dim=1)


def _step(q: Tensor, k: Tensor, v: Tensor, memory: CacheMemory) -> Tensor:
    length, seen = q.shape[1], memory.keys.shape[1]
    own = torch.eye(length, dtype=torch.bool, device=q.device)
    mask = torch.cat([own.new_ones(length, seen), own], dim=1)
    keys, values = torch.cat([memory.keys, k], dim=1), torch.cat([memory.values, v], dim=1)
    return _attend(q, keys, values, mask=mask)


def _attend(
    q: Float[Tensor, "b t h k"],
    k: Float[Tensor, "b s h k"],
    v: Float[Tensor, "b s h v"],
    *,
    causal: bool = False,
    mask: Bool[Tensor, "t s"] | None = None,
) -> Float[Tensor, "b t h v"]:
    """Scaled dot-product attention without a scale, which `q` already carries.

    Scores and their sums are float32 inside, whatever the inputs.
    """
    q, k, v = (z.transpose(1, 2) for z in (q, k, v))
    outputs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=1.0)
    return at_least_float32(outputs.transpose(1, 2))
