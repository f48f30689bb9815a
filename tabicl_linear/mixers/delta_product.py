"""DeltaProduct: several delta writes for each token."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels import delta
from tabicl_linear.kernels.matrix import matrix_of, read
from tabicl_linear.kernels.rule import StateNorms, UpdateRule, at_least_float32, full_precision
from tabicl_linear.kernels.state import MatrixState, RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim
from tabicl_linear.nn.delta_features import DeltaFeatures
from tabicl_linear.nn.gates import WriteRate
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.types import Float, Int, Tensor


@dataclass(frozen=True)
class DeltaProductRule(UpdateRule):
    """S_t = S_{t-1} prod_j (I - b_tj k_tj k_tj^T) + the terms written, j = 1 ... n in order.

    A token with n writes is computed as n tokens of the delta rule, of which only the last reads.
    In the streams, keys and values of all writes of a token are concatenated along the channels,
    and their rates along the heads. The initial state is zero unless one is passed.

    Attributes:
        num_writes: Writes of a token, n.
        rule: The delta rule that computes them.
    """

    erases: ClassVar[bool] = True

    num_writes: int
    rule: delta.DeltaRule = field(default_factory=delta.DeltaRule)
    state_norms: StateNorms = field(default="final", init=False)

    def scan(
        self, x: Streams, state: RuleState | None = None
    ) -> tuple[Float[Tensor, "b t h v"], MatrixState]:
        """Write all tokens; every token reads the state that includes its own writes."""
        outputs, final = self.rule.scan(self._spread(x), state)
        return outputs[:, self.num_writes - 1 :: self.num_writes], final

    def fold(self, x: Streams, state: RuleState | None = None) -> MatrixState:
        """Only the final state."""
        return self.rule.fold(self._spread(x), state)

    def read(self, q: Float[Tensor, "b t h k"], state: RuleState) -> Float[Tensor, "b t h v"]:
        """o = S q."""
        return self.rule.read(q, state)

    def peek(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """What each token reads after only its own writes, computed from the last write back.

        A write turns S q into S (q - w k) + w v with w = b (k.q).
        """
        with full_precision(x.q):
            q, k, v, beta = map(at_least_float32, (x.q, *self._writes(x)))
            own = torch.zeros_like(v[..., 0, :])
            for write in reversed(range(self.num_writes)):
                key = k[..., write, :]
                weight = (beta[..., write] * (key * q).sum(-1)).unsqueeze(-1)
                own, q = own + weight * v[..., write, :], q - weight * key
            return own + read(q, matrix_of(state))

    def _writes(
        self, x: Streams
    ) -> tuple[Float[Tensor, "b t h n k"], Float[Tensor, "b t h n v"], Float[Tensor, "b t h n"]]:
        """Keys, values and rates of each write."""
        n = self.num_writes
        k, v = x.k.unflatten(-1, (n, -1)), x.v.unflatten(-1, (n, -1))
        return k, v, delta.write_rates(x).unflatten(-1, (-1, n))

    def _spread(self, x: Streams) -> Streams:
        """Streams in which each write is a token."""
        k, v, beta = (z.movedim(3, 2).flatten(1, 2) for z in self._writes(x))
        return Streams(x.q.repeat_interleave(self.num_writes, 1), k, v, beta)


class DeltaProduct(SequenceMixer):
    """DeltaNet with n writes per token, S_{t-1} prod_j (I - beta_tj k_tj k_tj^T) + ...

    It is not in the paper (arXiv:2502.10297). Each write of a token has its own key, value and
    rate, so that a token can change the state in n directions. Otherwise as in `DeltaNet`: silu,
    keys and queries of unit norm, queries scaled by key_dim^-0.5, rates in (0, 1). The state starts
    at zero and is float32. Outputs pass through a norm per head.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim`.
        num_writes: Writes of a token, n.
        decay_constant: c of the write-rate decay c / (t + c), t in tokens; None for no decay.
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        num_writes: int = 2,
        decay_constant: float | int | None = None,
        norm_eps: float = 1e-6,
    ) -> None:
        if num_writes < 1:
            raise ConfigError(f"num_writes={num_writes} must be at least 1.")
        width = head_dim(dim, num_heads)
        super().__init__(DeltaProductRule(num_writes), (num_heads, width, width))
        self.num_writes = num_writes
        self.head_dim = width
        self.query = nn.Linear(dim, dim, bias=False)
        self.keys_values = nn.Linear(dim, 2 * num_writes * dim, bias=False)
        self.features = DeltaFeatures()
        self.write_rate = WriteRate(dim, num_heads * num_writes, decay_constant)
        self.norm = RMSNorm(self.head_dim, eps=norm_eps)
        self.out = nn.Linear(dim, dim, bias=False)
        initialise_(self)

    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """Unit-norm queries and keys, values and rates; keys, values and rates of all writes."""
        heads = self.num_heads, self.num_writes
        q = self.query(x).unflatten(-1, (self.num_heads, 1, self.head_dim))
        k, v = self.keys_values(x).unflatten(-1, (2, *heads, self.head_dim)).unbind(2)
        qkv = torch.stack([q.expand_as(k), k, v], dim=2)
        q, k, v = self.features(qkv.flatten(-3, -2))
        streams = Streams(
            q=q[..., :: self.num_writes, :],
            k=k.unflatten(-2, heads).flatten(-2),
            v=v.unflatten(-2, heads).flatten(-2),
            beta=self.write_rate(x, positions),
        )
        return streams, conv_inputs

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Norm per head, then the output projection."""
        return self.out(self.norm(heads).flatten(-2))
