"""Functions shared by the rules with a matrix state."""

from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F

from tabicl_linear.kernels import chunks
from tabicl_linear.kernels.rule import at_least_float32
from tabicl_linear.kernels.state import MatrixState, RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor


def read(q: Float[Tensor, "b t h k"], S: Float[Tensor, "b h v k"]) -> Float[Tensor, "b t h v"]:
    """o = S q for every token."""
    return (q.transpose(1, 2) @ S.transpose(-1, -2)).transpose(1, 2)


def initial_state(x: Streams, state: RuleState | None) -> Float[Tensor, "b h v k"]:
    """The matrix to start from: that of `state`, or zero."""
    if state is not None:
        return matrix_of(state)
    b, _, h, k = x.k.shape
    return at_least_float32(x.v).new_zeros(b, h, x.v.shape[-1], k)


def matrix_of(state: RuleState) -> Float[Tensor, "b h v k"]:
    """S of a matrix state; any other state is a bug in the caller."""
    assert isinstance(state, MatrixState), f"expected a MatrixState, got {type(state).__name__}"
    return state.S


def per_channel(log_decay: Float[Tensor, "b t h g"] | None) -> TypeGuard[Float[Tensor, "b t h g"]]:
    """Whether there is one gate per key channel (rather than one per head, or none)."""
    return log_decay is not None and log_decay.shape[-1] > 1


def cumulative_decay(
    log_decay: Float[Tensor, "b t h g"] | None, size: int
) -> Float[Tensor, "i bh s g"] | None:
    """The log decay in chunks, summed from the start of each chunk up to each token, in float64.

    After a strong gate, the decay between two tokens is a small difference of two large sums, which
    float32 cannot represent.
    """
    if log_decay is None:
        return None
    return chunks.split(log_decay.double(), size).cumsum(-2)


def decay(g: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """exp(g) in `dtype`, for sums of log decays or their differences in float64.

    Differences need float64. `exp` comes after rounding, since for it float64 would only cost time.
    """
    return g.to(dtype).exp()


def pairwise_decay(g: Float[Tensor, "i bh s 1"], dtype: torch.dtype) -> Float[Tensor, "i bh s s"]:
    """D_ij = exp(g_i - g_j) for j <= i, else 0.

    The upper half is masked before `exp`, so that no infinity in it reaches autograd.
    """
    later = g.new_ones(g.shape[-2], g.shape[-2], dtype=torch.bool).triu(1)
    return (g - g.transpose(-1, -2)).to(dtype).masked_fill_(later, -torch.inf).exp_()


def decayed_scores(
    q: Float[Tensor, "i bh s k"], k: Float[Tensor, "i bh s k"], g: Float[Tensor, "i bh s g"] | None
) -> Float[Tensor, "i bh s s"]:
    """q_i k_j, decayed from j to i, for j <= i.

    Args:
        q: Queries.
        k: Keys.
        g: None, or the log decay summed from the start of the chunk, one number a token.
    """
    if g is None:
        return (q @ k.transpose(-1, -2)).tril()
    return (q @ k.transpose(-1, -2)) * pairwise_decay(g, q.dtype)


def decayed_keys(
    k: Float[Tensor, "i bh s k"], g: Float[Tensor, "i bh s g"] | None
) -> tuple[Float[Tensor, "i bh s k"], Float[Tensor, "i bh 1 g"] | None]:
    """Keys decayed to the end of their chunk, and the factor on the state over a chunk.

    Args:
        k: Keys.
        g: None, or the log decay summed from the start of the chunk.
    """
    if g is None:
        return k, None
    last = g[..., -1:, :]
    return k * decay(last - g, k.dtype), decay(last, k.dtype)


class Decayed(NamedTuple):
    """Queries and keys of chunks under gates; g is the log decay summed from a chunk's start."""

    scores: Float[Tensor, "i bh s s"]
    """q_i k_j, decayed from j to i, for j <= i, else 0."""

    queries: Float[Tensor, "i bh s k"]
    """exp(g_i) * q_i: decayed from the start of the chunk."""

    keys: Float[Tensor, "i bh s k"]
    """exp(g_C - g_j) * k_j: decayed to the end of the chunk."""

    retention: Float[Tensor, "i bh 1 g"] | None
    """exp(g_C), the share of the state that a chunk keeps; None without gates (all of it)."""


def decayed(
    q: Float[Tensor, "i bh s k"],
    k: Float[Tensor, "i bh s k"],
    log_decay: Float[Tensor, "b t h g"] | None,
) -> Decayed:
    """Scores, queries and keys of chunks with their decays, for any kind of gate.

    Args:
        q: Queries in chunks.
        k: Keys in chunks.
        log_decay: Log decays before they are split into chunks, or None.
    """
    size = q.shape[-2]
    if per_channel(log_decay):
        return halved(q, k, chunks.split(at_least_float32(log_decay), size))
    g = cumulative_decay(log_decay, size)
    queries = q if g is None else q * decay(g, q.dtype)
    return Decayed(decayed_scores(q, k, g), queries, *decayed_keys(k, g))


def halved(
    q: Float[Tensor, "i bh s k"], k: Float[Tensor, "i bh s k"], log_decay: Float[Tensor, "i bh s k"]
) -> Decayed:
    """Decays with one gate per key channel, merged from blocks of one token up to whole chunks.

    Two neighbouring blocks are merged by one product of the second block's queries, decayed from
    its start, with the first block's keys, decayed to its end. That takes C log C exponentials and
    products per channel, where the decays of all pairs would take C^2. Log decays are only added
    and their sums never subtracted, so float32 represents the decay between any two tokens.

    Args:
        q: Queries.
        k: Keys.
        log_decay: Log decay of each token, at most zero.
    """
    size = q.shape[-2]
    padding = (1 << (size - 1).bit_length()) - size
    q, k, total = (F.pad(z, (0, 0, 0, padding)).unsqueeze(-2) for z in (q, k, log_decay))
    scores, retention = (q * k).sum(-1, keepdim=True), total.exp()
    q = q * retention
    while q.shape[2] > 1:
        pairs = (z.unflatten(2, (-1, 2)).unbind(3) for z in (q, k, total, retention, scores))
        (q, later), (earlier, k), totals, (first, second), (upper, lower) = pairs
        # For single rows, PyTorch's matrix product is slower than a sum of products.
        single = later.shape[-2] == 1
        cross = (
            (later * earlier).sum(-1, keepdim=True) if single else later @ earlier.transpose(-1, -2)
        )
        above = torch.cat([upper, torch.zeros_like(cross)], -1)
        scores = torch.cat([above, torch.cat([cross, lower], -1)], -2)
        q = torch.cat([q, later * first], -2)
        k = torch.cat([earlier * second, k], -2)
        total = totals[0] + totals[1]
        retention = total.exp()
    scores, q, k, retention = (z.squeeze(2) for z in (scores, q, k, retention))
    return Decayed(scores[..., :size, :size], q[..., :size, :], k[..., :size, :], retention)
