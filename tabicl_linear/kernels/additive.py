"""Additive states: linear attention, gated linear attention and Mamba-2's state space dual form.

Notation: C tokens per chunk, g the log decay summed from the start of the chunk, S the state before
the chunk. Decays appear only as exp(g_i - g_j) with j <= i, never as exp(-g_j), so strong gates
cannot overflow.
"""

from dataclasses import dataclass

import torch

from tabicl_linear.kernels import chunks
from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.matrix import (
    cumulative_decay,
    decayed,
    decayed_keys,
    initial_state,
    matrix_of,
    read,
)
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
class AdditiveRule(UpdateRule):
    """S_t = S_{t-1} Diag(alpha_t) + beta_t v_t k_t^T, read as o_t = S_t q_t (Equation 2).

    Without `log_decay` this is linear attention, and the final state does not depend on the order
    of the tokens; with one gate per head it is Mamba-2, with one per key channel GLA. If beta is
    None, every token is written with weight one. The initial state is zero unless one is passed.

    Attributes:
        chunk_size: Tokens per chunk.
        state_norms: As in `UpdateRule`: can be "prefix" only without decay; "none" if the last
            value channel sums keys (Z of Equation 2), which a norm would mix with the values.
    """

    chunk_size: int = 64
    state_norms: StateNorms = "final"

    def scan(
        self, x: Streams, state: RuleState | None = None
    ) -> tuple[Float[Tensor, "b t h v"], MatrixState]:
        """Write all tokens; every token reads the state that includes its own write."""
        with full_precision(x.q):
            outputs, S = chosen(scan)(x, initial_state(x, state), size=self.chunk_size)
        return outputs, MatrixState(S)

    def fold(self, x: Streams, state: RuleState | None = None) -> MatrixState:
        """The final state, without any reads."""
        with full_precision(x.q):
            return MatrixState(chosen(fold)(x, initial_state(x, state), size=self.chunk_size))

    def read(self, q: Float[Tensor, "b t h k"], state: RuleState) -> Float[Tensor, "b t h v"]:
        """o = S q."""
        with full_precision(q):
            return read(at_least_float32(q), matrix_of(state))

    def peek(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """S (alpha * q) + (k.q) beta v: what each token reads after writing only itself."""
        with full_precision(x.q):
            q, k = at_least_float32(x.q), at_least_float32(x.k)
            gated = q if x.log_decay is None else q * at_least_float32(x.log_decay).exp()
            own = (k * q).sum(-1, keepdim=True) * weighted(x).v
            return read(gated, matrix_of(state)) + own

    def prefix_square_norms(
        self, x: Streams, state: RuleState | None = None
    ) -> Float[Tensor, "b t h"]:
        """|S_i|^2 = |S_{i-1}|^2 + 2 v_i.(S_{i-1} k_i) + |v_i|^2 |k_i|^2: one more scan."""
        with full_precision(x.q):
            S, v = initial_state(x, state), weighted(x).v
            recalled, _ = chosen(scan)(Streams(x.k, x.k, v), S, size=self.chunk_size)
            growth = _growth(at_least_float32(x.k), v, recalled, own=True)
            return S.square().sum((-1, -2)).unsqueeze(1) + growth.cumsum(1)

    def peek_square_norms(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h"]:
        """|S + v k^T|^2 for each token, after writing only itself."""
        with full_precision(x.q):
            S, k = matrix_of(state), at_least_float32(x.k)
            growth = _growth(k, weighted(x).v, read(k, S), own=False)
            return S.square().sum((-1, -2)).unsqueeze(1) + growth


def scan(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    """All prefix reads S_i q_i and the final state.

    Args:
        x: Streams.
        S: Initial state.
        size: Tokens of a chunk.
    """
    batch, length, heads, _ = x.q.shape
    size, x = chunks.fitting(size, length), weighted(x)
    q, k, v = (chunks.split(at_least_float32(z), size) for z in (x.q, x.k, x.v))
    scores, queries, keys, retention = decayed(q, k, x.log_decay)
    states, final = _run(keys, v, retention, S)
    outputs = queries @ states + scores @ v
    return chunks.join(outputs, batch=batch, length=length, heads=heads), final


def fold(x: Streams, S: Float[Tensor, "b h v k"], *, size: int) -> Float[Tensor, "b h v k"]:
    """The final state; arguments as in `scan`."""
    x = weighted(x)
    if x.log_decay is None:
        k, v = (at_least_float32(z).transpose(1, 2) for z in (x.k, x.v))
        return S + v.transpose(-1, -2) @ k
    size = chunks.fitting(size, x.k.shape[1])
    k, v = (chunks.split(at_least_float32(z), size) for z in (x.k, x.v))
    keys, retention = decayed_keys(k, cumulative_decay(x.log_decay, size))
    return _run(keys, v, retention, S)[1]


def _run(keys: Tensor, v: Tensor, retention: Tensor | None, S: Tensor) -> tuple[Tensor, Tensor]:
    """Carry the state over the chunks.

    Returns the transposed states before each chunk, [i bh k v], and the final state, [b h v k].
    """
    b, h, value_dim, key_dim = S.shape
    state = S.reshape(b * h, value_dim, key_dim).transpose(-1, -2)
    writes = keys.transpose(-1, -2) @ v
    # `unbind`, not indexing: the gradient of indexing is a full tensor of zeros per chunk.
    factors = [None] * len(writes) if retention is None else retention.transpose(-1, -2).unbind(0)
    before = []
    for write, factor in zip(writes.unbind(0), factors, strict=True):
        before.append(state)
        state = write + state if factor is None else torch.addcmul(write, factor, state)
    return torch.stack(before), state.transpose(-1, -2).reshape(b, h, value_dim, key_dim)


def weighted(x: Streams) -> Streams:
    """Streams with the write rates multiplied into the values, in at least float32."""
    v = at_least_float32(x.v)
    weighted = v if x.beta is None else v * at_least_float32(x.beta).unsqueeze(-1)
    return x._replace(v=weighted, beta=None)


def _growth(k: Tensor, v: Tensor, recalled: Tensor, *, own: bool) -> Tensor:
    """|S + v k^T|^2 - |S|^2, where `recalled` is S k; if `own`, it is (S + v k^T) k."""
    square = k.square().sum(-1) * v.square().sum(-1)
    return 2 * (v * recalled).sum(-1) + (-square if own else square)


TORCH = Kernel(scan, fold)
"""Additive states in plain PyTorch."""
