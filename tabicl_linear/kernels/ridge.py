"""Layer-local ridge regression as an update rule whose state is two sums."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels.matrix import read
from tabicl_linear.kernels.rule import UpdateRule, at_least_float32, full_precision
from tabicl_linear.kernels.state import GramState, RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor

Penalty = Literal["scaled", "plain", "none"]


@dataclass(frozen=True)
class RidgeRule(UpdateRule):
    """S = V^T K (K^T K + n lambda I)^-1, read as o = S q (appendix B.5).

    The state holds V^T K, K^T K and n, so states of two contexts merge by addition and the order of
    tokens does not matter. Sums and solution are float64 for inputs of any dtype, since rows of a
    table are correlated and lambda may be tiny. The system is solved when the state is read. There
    are no prefix reads.

    Attributes:
        penalty: `scaled` for n lambda, as in the paper; `plain` for lambda; `none` for least
            squares by the pseudo-inverse.
        regulariser: lambda > 0.
    """

    has_prefix_reads: ClassVar[bool] = False
    has_matrix_state: ClassVar[bool] = False

    penalty: Penalty = "scaled"
    regulariser: float = 1.0

    def scan(
        self, x: Streams, state: RuleState | None = None
    ) -> tuple[Float[Tensor, "b t h v"], RuleState]:
        """Not provided: a solve per prefix would not be linear in the number of tokens."""
        raise UnsupportedReadout("RidgeRule has no prefix reads; use readouts.FinalState.")

    def fold(self, x: Streams, state: RuleState | None = None) -> GramState:
        """The sums of the state plus those of all tokens."""
        with full_precision(x.k):
            k, v = x.k.double().transpose(1, 2), x.v.double().transpose(1, 2)
            cross, gram = v.transpose(-1, -2) @ k, k.transpose(-1, -2) @ k
        rows = x.k.shape[1]
        if state is None:
            return GramState(cross, gram, rows)
        assert isinstance(state, GramState)
        return GramState(state.cross + cross, state.gram + gram, state.rows + rows)

    def read(self, q: Float[Tensor, "b t h k"], state: RuleState) -> Float[Tensor, "b t h v"]:
        """Solve for S, then read o = S q."""
        assert isinstance(state, GramState)
        with full_precision(q):
            S = self.solve(state)
            return read(q.double(), S).to(at_least_float32(q).dtype)

    def peek(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """Not provided: every token would need its own solve."""
        raise UnsupportedReadout("RidgeRule has no self term; use readouts.FinalState.")

    def solve(self, state: GramState) -> Float[Tensor, "b h v k"]:
        """The matrix S that solves the regression, in float64."""
        if self.penalty == "none":
            S = state.cross @ torch.linalg.pinv(state.gram, hermitian=True, rtol=PINV_RTOL)
        else:
            # Without rows the sums are zero, and so is S for any penalty.
            scale = max(1, state.rows) if self.penalty == "scaled" else 1
            eye = torch.eye(state.gram.shape[-1], dtype=torch.float64, device=state.gram.device)
            factor = torch.linalg.cholesky(state.gram + scale * self.regulariser * eye)
            S = torch.cholesky_solve(state.cross.mT, factor).mT
        solution: Tensor = S
        return solution


PINV_RTOL = 1e-10
"""Directions of the keys weaker than this, relative to the strongest, are ignored."""
