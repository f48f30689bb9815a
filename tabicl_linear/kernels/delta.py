"""The delta rule and its gated forms, in chunks.

Notation: C tokens per chunk, g the log decay summed from the start of the chunk (one number, or one
for each key channel), S the state before the chunk. A chunk writes S' = S Diag(exp(g_C)) +
sum_i u_i k~_i^T with k~_i = exp(g_C - g_i) * k_i and

    u = (I + A)^-1 diag(beta) (V - (exp(g) * K) S^T),   A_ij = beta_i k_i . (exp(g_i - g_j) * k_j)
    for j < i, else 0.

(I + A)^-1 is computed by one triangular solve per chunk. Do not replace it by a product of powers
of A: rows of a table are correlated, and with such keys that product loses all its digits.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch

from tabicl_linear.kernels import chunks
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.matrix import decayed, initial_state, matrix_of, per_channel, read
from tabicl_linear.kernels.rule import (
    Kernel,
    StateNorms,
    UpdateRule,
    at_least_float32,
    full_precision,
)
from tabicl_linear.kernels.state import MatrixState, RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor


@dataclass(frozen=True)
class DeltaRule(UpdateRule):
    """S_t = S_{t-1} Diag(a_t) (I - b_t k_t k_t^T) + b_t v_t k_t^T, read as o_t = S_t q_t.

    With `log_decay=None` this is DeltaNet (section 4.4), with one gate per head Gated DeltaNet, and
    with one per key channel Kimi Delta Attention (arXiv:2510.26692). Keys must have unit norm for
    the recurrence to be a contraction. Order matters: permuting tokens changes S. The initial state
    is zero unless one is passed.

    Attributes:
        chunk_size: Tokens per chunk, with no gates or one per head.
        channel_chunk_size: Tokens per chunk with one gate per key channel.
    """

    erases: ClassVar[bool] = True

    chunk_size: int = 32
    channel_chunk_size: int = 16
    state_norms: StateNorms = field(default="final", init=False)

    def scan(
        self, x: Streams, state: RuleState | None = None
    ) -> tuple[Float[Tensor, "b t h v"], MatrixState]:
        """Write all tokens; every token reads the state that includes its own write."""
        with full_precision(x.q):
            outputs, S = chosen(scan)(x, initial_state(x, state), size=self._size(x))
        return outputs, MatrixState(S)

    def fold(self, x: Streams, state: RuleState | None = None) -> MatrixState:
        """Only the final state: the scan without its reads."""
        with full_precision(x.q):
            return MatrixState(chosen(fold)(x, initial_state(x, state), size=self._size(x)))

    def read(self, q: Float[Tensor, "b t h k"], state: RuleState) -> Float[Tensor, "b t h v"]:
        """o = S q."""
        with full_precision(q):
            return read(at_least_float32(q), matrix_of(state))

    def peek(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """S (a * q) + b (k.q) (v - S (a * k)): what each token reads after writing only itself."""
        with full_precision(x.q):
            q, k, v, beta = map(at_least_float32, (x.q, x.k, x.v, write_rates(x)))
            weight = (beta * (k * q).sum(-1)).unsqueeze(-1)
            if x.log_decay is not None:
                alpha = at_least_float32(x.log_decay).exp()
                q, k = alpha * q, alpha * k
            own, recalled = read(q, matrix_of(state)), read(k, matrix_of(state))
            return own + weight * (v - recalled)

    def _size(self, x: Streams) -> int:
        return self.channel_chunk_size if per_channel(x.log_decay) else self.chunk_size


class _Chunks(NamedTuple):
    """The inputs of the loop over chunks, computed for all chunks at once."""

    W: Float[Tensor, "i bh s k"]  # (I + A)^-1 diag(beta exp(g)) K
    U: Float[Tensor, "i bh s v"]  # (I + A)^-1 diag(beta) V
    writes: Float[Tensor, "i bh k s"]  # keys, decayed to the end of the chunk, transposed
    retention: Float[Tensor, "i bh g 1"] | None  # exp(g_C)


def write_rates(x: Streams) -> Float[Tensor, "b t h"]:
    """The write rates beta, which streams of a delta rule always have."""
    assert x.beta is not None, "the delta rule needs write rates"
    return x.beta


def scan(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    """All prefix reads S_i q_i and the final state.

    Args:
        x: Streams with write rates.
        S: Initial state.
        size: Tokens of a chunk.
    """
    batch, length, heads, _ = x.q.shape
    size = chunks.fitting(size, length)
    q_chunks, k_chunks = (chunks.split(at_least_float32(z), size) for z in (x.q, x.k))
    states, updates, final = _run(_prepare(k_chunks, x), S)
    scores, queries, _, _ = decayed(q_chunks, k_chunks, x.log_decay)
    outputs = queries @ torch.stack(states) + scores @ torch.stack(updates)
    return chunks.join(outputs, batch=batch, length=length, heads=heads), final


def fold(x: Streams, S: Float[Tensor, "b h v k"], *, size: int) -> Float[Tensor, "b h v k"]:
    """The final state; arguments as in `scan`."""
    size = chunks.fitting(size, x.k.shape[1])
    k_chunks = chunks.split(at_least_float32(x.k), size)
    return _run(_prepare(k_chunks, x), S)[2]


def _prepare(k: Tensor, x: Streams) -> _Chunks:
    """The inputs of the loop over chunks, from the chunked keys and the other streams of `x`."""
    size = k.shape[-2]
    v_chunks = chunks.split(at_least_float32(x.v), size)
    b_chunks = chunks.split(at_least_float32(write_rates(x)).unsqueeze(-1), size)
    scores, recalling, writing, retention = decayed(k, k, x.log_decay)
    eye = torch.eye(size, dtype=k.dtype, device=k.device)
    A = (b_chunks * scores).tril(-1)
    inverse = torch.linalg.solve_triangular(
        eye + A, eye.expand_as(A), upper=False, unitriangular=True
    ) * b_chunks.transpose(-1, -2)
    return _Chunks(
        inverse @ recalling,
        inverse @ v_chunks,
        writing.transpose(-1, -2),
        None if retention is None else retention.transpose(-1, -2),
    )


def _run(parts: _Chunks, S: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Carry the state over the chunks.

    Returns the transposed state before each chunk, [bh k v]; the updates u of each chunk,
    [bh s v]; and the final state, [b h v k].
    """
    b, h, v, k = S.shape
    state = S.reshape(b * h, v, k).transpose(-1, -2)
    states, updates = [], []
    factors = [None] * len(parts.W) if parts.retention is None else parts.retention.unbind(0)
    # `unbind`, not indexing: the gradient of indexing is a full tensor of zeros per chunk.
    rows = zip(parts.W.unbind(0), parts.U.unbind(0), parts.writes.unbind(0), factors, strict=True)
    for W, U, writes, retention in rows:
        states.append(state)
        updates.append(torch.baddbmm(U, W, state, alpha=-1))
        state = state if retention is None else state * retention
        state = torch.baddbmm(state, writes, updates[-1])
    return states, updates, state.transpose(-1, -2).reshape(b, h, v, k)


TORCH = Kernel(scan, fold)
"""The delta rule in plain PyTorch."""
