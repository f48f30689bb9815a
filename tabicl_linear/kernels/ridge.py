"""Layer-local ridge regression as an update rule whose memory is two sums."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels.matrix import read
from tabicl_linear.kernels.memory import GramMemory, Memory
from tabicl_linear.kernels.rule import UpdateRule, at_least_float32, full_precision
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor

Penalty = Literal["scaled", "plain", "none"]


@dataclass(frozen=True)
class RidgeRule(UpdateRule):
    """S = V^T K (K^T K + n lambda I)^-1, read as o = S q (appendix B.5).

    The memory holds V^T K, K^T K and n: fitted contexts merge by addition and the order of tokens
    does not matter. The system is solved when the memory is read, in float64: rows of a table are
    correlated and lambda may be tiny. There are no prefix reads.

    Attributes:
        penalty: scaled: n lambda, as in the paper; plain: lambda; none: least squares, by the
            pseudo-inverse.
        regulariser: lambda > 0.
    """

    has_prefix_reads: ClassVar[bool] = False
    has_matrix_memory: ClassVar[bool] = False

    penalty: Penalty = "scaled"
    regulariser: float = 1.0

    def scan(
        self, x: Streams, memory: Memory | None = None
    ) -> tuple[Float[Tensor, "b t h v"], Memory]:
        """Not provided: a solve per prefix would not be linear in the number of tokens."""
        raise UnsupportedReadout("RidgeRule has no prefix reads; use readouts.FinalState.")

    def fold(self, x: Streams, memory: Memory | None = None) -> GramMemory:
        """The sums, with those of all tokens added."""
        with full_precision(x.k):
            k = at_least_float32(x.k).transpose(1, 2)
            v = at_least_float32(x.v).transpose(1, 2)
            cross, gram = v.transpose(-1, -2) @ k, k.transpose(-1, -2) @ k
        rows = x.k.shape[1]
        if memory is None:
            return GramMemory(cross, gram, rows)
        assert isinstance(memory, GramMemory)
        return GramMemory(memory.cross + cross, memory.gram + gram, memory.rows + rows)

    def read(self, q: Float[Tensor, "b t h k"], memory: Memory) -> Float[Tensor, "b t h v"]:
        """Solve for S, then o = S q."""
        assert isinstance(memory, GramMemory)
        with full_precision(q):
            S = self.solve(memory)
            return read(q.to(S.dtype), S).to(q.dtype)

    def step(self, x: Streams, memory: Memory) -> Float[Tensor, "b t h v"]:
        """Not provided: the own token would need a solve of its own."""
        raise UnsupportedReadout("RidgeRule has no self term; use readouts.FinalState.")

    def solve(self, memory: GramMemory) -> Float[Tensor, "b h v k"]:
        """The state S of a memory, in the memory's dtype."""
        gram, cross = memory.gram.double(), memory.cross.double()
        if self.penalty == "none":
            S = cross @ torch.linalg.pinv(gram, hermitian=True)
        else:
            scale = memory.rows if self.penalty == "scaled" else 1
            # Sums rounded to the memory's dtype are indefinite by about this much; a smaller
            # penalty could not be told from rounding and would break the factorisation.
            rounding = gram.shape[-1] * torch.finfo(memory.gram.dtype).eps
            floor = rounding * gram.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
            penalty = floor.clamp(min=scale * self.regulariser).expand(gram.shape[:-1])
            factor = torch.linalg.cholesky(gram + torch.diag_embed(penalty))
            S = torch.cholesky_solve(cross.mT, factor).mT
        solution: Tensor = S.to(memory.gram.dtype)
        return solution
