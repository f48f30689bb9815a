"""Softmax attention as an update rule whose state grows by one key and one value per token."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from tabicl_linear.kernels.rule import UpdateRule, at_least_float32
from tabicl_linear.kernels.state import CacheState, RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Bool, Float, Tensor

QUERY_BLOCK = 256
"""Queries in a block: bounds the memory of scores and masks where no fused kernel avoids them."""


@dataclass(frozen=True)
class SoftmaxRule(UpdateRule):
    """o_i = sum_j softmax_j(q_i k_j) v_j over the tokens in the cache.

    The state is the cache of keys and values in their own dtype. Unlike with the recurrent rules,
    its size and the cost of a read, which needs all of it, grow with the context. Reads do not
    depend on the order of its tokens.
    """

    has_matrix_state: ClassVar[bool] = False

    def scan(
        self, x: Streams, state: RuleState | None = None
    ) -> tuple[Float[Tensor, "b t h v"], CacheState]:
        """Causal attention; the tokens in the cache come before those of `x`."""
        total = self.fold(x, state)
        length, num_keys = x.q.shape[1], total.keys.shape[1]
        if length in (0, num_keys):
            return _attend(x.q, total.keys, total.values, causal=True), total
        # Block by block, so that the mask stays small compared with the cache.
        outputs = []
        for start in range(0, length, QUERY_BLOCK):
            q = x.q[:, start : start + QUERY_BLOCK]
            first = num_keys - length + start
            end = first + q.shape[1]
            mask = torch.ones(q.shape[1], end, dtype=torch.bool, device=q.device).tril(first)
            outputs.append(_attend(q, total.keys[:, :end], total.values[:, :end], mask=mask))
        return torch.cat(outputs, dim=1), total

    def fold(self, x: Streams, state: RuleState | None = None) -> CacheState:
        """The state with the keys and values of all tokens appended."""
        if state is None:
            return CacheState(x.k, x.v)
        assert isinstance(state, CacheState)
        return CacheState(
            torch.cat([state.keys, x.k], dim=1), torch.cat([state.values, x.v], dim=1)
        )

    def read(self, q: Float[Tensor, "b t h k"], state: RuleState) -> Float[Tensor, "b t h v"]:
        """Attention to everything in the cache."""
        assert isinstance(state, CacheState)
        return _attend(q, state.keys, state.values)

    def peek(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """Attention to everything in the cache and to the token itself."""
        assert isinstance(state, CacheState)
        # Block by block: a query also gets the keys of its block, with all but its own masked out.
        blocks = zip(*(z.split(QUERY_BLOCK, dim=1) for z in (x.q, x.k, x.v)), strict=True)
        return torch.cat([_peek(q, k, v, state) for q, k, v in blocks], dim=1)


def _peek(q: Tensor, k: Tensor, v: Tensor, state: CacheState) -> Tensor:
    length, num_keys = q.shape[1], state.keys.shape[1]
    own = torch.eye(length, dtype=torch.bool, device=q.device)
    mask = torch.cat([own.new_ones(length, num_keys), own], dim=1)
    keys, values = torch.cat([state.keys, k], dim=1), torch.cat([state.values, v], dim=1)
    return _attend(q, keys, values, mask=mask)


def _attend(
    q: Float[Tensor, "b t h k"],
    k: Float[Tensor, "b s h k"],
    v: Float[Tensor, "b s h v"],
    *,
    causal: bool = False,
    mask: Bool[Tensor, "t s"] | None = None,
) -> Float[Tensor, "b t h v"]:
    """Dot-product attention without a scale, since `q` is already scaled.

    Scores and their sums are computed in at least float32.
    """
    q, k, v = (z.transpose(1, 2) for z in (q, k, v))
    outputs = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=1.0)
    return at_least_float32(outputs.transpose(1, 2))
