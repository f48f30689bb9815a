"""Functions shared by the rules with a matrix state."""

import torch

from tabicl_linear.kernels import chunks
from tabicl_linear.kernels.rule import at_least_float32
from tabicl_linear.kernels.state import MatrixState, RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor


def read(q: Float[Tensor, "b t h k"], S: Float[Tensor, "b h v k"]) -> Float[Tensor, "b t h v"]:
    """o = S q for every token."""
    return (q.transpose(1, 2) @ S.transpose(-1, -2)).transpose(1, 2)


def initial_state(x: Streams, state: RuleState | None) -> Float[Tensor, "b h v k"]:
    """The matrix to start from: zero unless a state is given."""
    if state is not None:
        return matrix_of(state)
    b, _, h, k = x.k.shape
    return at_least_float32(x.v).new_zeros(b, h, x.v.shape[-1], k)


def matrix_of(state: RuleState) -> Float[Tensor, "b h v k"]:
    """S of a matrix state; any other state is a bug in the caller."""
    assert isinstance(state, MatrixState), f"expected a MatrixState, got {type(state).__name__}"
    return state.S


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
    """exp of sums of log decays, or of their differences, in the precision of a state.

    Differences are taken before rounding and `exp` after it, where float64 would only cost time.
    """
    return g.to(dtype).exp()


def pairwise_decay(g: Float[Tensor, "i bh s 1"], dtype: torch.dtype) -> Float[Tensor, "i bh s s"]:
    """D_ij = exp(g_i - g_j) for j <= i, else 0.

    Also masked before `exp`, so that no infinity of the upper half reaches autograd.
    """
    return decay((g - g.transpose(-1, -2)).tril(), dtype).tril()


def decayed_scores(
    q: Float[Tensor, "i bh s k"], k: Float[Tensor, "i bh s k"], g: Float[Tensor, "i bh s g"] | None
) -> Float[Tensor, "i bh s s"]:
    """q_i k_j, decayed from j to i, for j <= i."""
    if g is None:
        return (q @ k.transpose(-1, -2)).tril()
    if g.shape[-1] == 1:
        return (q @ k.transpose(-1, -2)) * pairwise_decay(g, q.dtype)
    size = q.shape[-2]
    later = torch.ones(size, size, dtype=torch.bool, device=q.device).tril().unsqueeze(-1)
    # Differences in float64, C^2 k numbers, would take half as long again. Differences of rounded
    # logs are exact wherever the decay is not negligible; the rounding errors, constants for
    # gradients, are multiplied into queries and keys.
    rounded = g.to(q.dtype)
    rest = (g - rounded).detach().to(q.dtype)
    difference = rounded.unsqueeze(-2) - rounded.unsqueeze(-3)
    decayed = difference.masked_fill(~later, -torch.inf).exp() * (k * (-rest).exp()).unsqueeze(-3)
    return (decayed @ (q * rest.exp()).unsqueeze(-1)).squeeze(-1)
