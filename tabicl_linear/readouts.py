"""Readouts: which state a token reads."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import nn

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.state import RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.nn.state_norm import StateNorm
from tabicl_linear.types import Float, Tensor


class Readout(nn.Module, ABC):
    """How context tokens and queries read the state of a rule; one per layer.

    A subclass is constructed from num_heads and options that have defaults. Reads are in at least
    float32.

    Attributes:
        is_causal: Whether no context token reads anything written after it. Only then can a fitted
            state be extended by more rows, and a row's own label be in the context (multi-target
            training).
        is_bidirectional: Whether the block runs over its context in both directions.
    """

    is_bidirectional: ClassVar[bool] = False

    @property
    @abstractmethod
    def is_causal(self) -> bool:
        """Set as a class attribute; abstract, so that a subclass without it cannot be made."""

    @abstractmethod
    def check(self, rule: UpdateRule) -> None:
        """Raise `UnsupportedReadout` if the rule does not support this readout."""

    @abstractmethod
    def context(
        self, rule: UpdateRule, x: Streams, state: RuleState | None
    ) -> tuple[Float[Tensor, "b t h v"], RuleState]:
        """Write the context, after `state` if given; return its reads and the final state."""

    @abstractmethod
    def query(self, rule: UpdateRule, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """What each query reads, independently of all others; the state does not change."""


ReadoutFactory = Callable[[int], Readout]
"""Makes the readout of one layer from num_heads."""


class Causal(Readout):
    """o_i = S_i q_i: a token reads everything written before it, and itself (section 3.2).

    Args:
        num_heads: Heads of the layer.
        self_term: Whether a query also reads its own write, like an appended token. The authors'
            recurrent models do; their softmax attention and their own linear attention do not.
        normalise: Replace the Frobenius norm of every state by a learned scale (section 4.3).
    """

    is_causal = True

    def __init__(self, num_heads: int, *, self_term: bool = True, normalise: bool = False) -> None:
        super().__init__()
        self.self_term = self_term
        self.state_norm = StateNorm(num_heads) if normalise else None

    def check(self, rule: UpdateRule) -> None:
        """The rule must provide reads of every prefix."""
        if not rule.has_prefix_reads:
            raise UnsupportedReadout(
                f"Causal readout needs prefix reads, which {type(rule).__name__} does not provide; "
                "use tabicl_linear.readouts.FinalState."
            )
        if self.state_norm is not None and rule.state_norms != "prefix":
            raise UnsupportedReadout(
                f"Causal readout with normalise needs the norms of all prefix states, which "
                f"{type(rule).__name__} does not provide (plain linear attention does); use "
                "FinalState with normalise, or leave normalise out."
            )

    def context(
        self, rule: UpdateRule, x: Streams, state: RuleState | None
    ) -> tuple[Float[Tensor, "b t h v"], RuleState]:
        """Every token reads the prefix that ends with itself."""
        heads, final = rule.scan(x, state)
        if self.state_norm is not None:
            factor = self.state_norm(rule.prefix_square_norms(x, state), heads.shape[-1])
            heads = heads * factor.to(heads.dtype)
        return heads, final

    def query(self, rule: UpdateRule, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """Every query reads the context's state, with its own write if `self_term` is set."""
        heads = rule.peek(x, state) if self.self_term else rule.read(x.q, state)
        if self.state_norm is None:
            return heads
        norms = rule.peek_square_norms(x, state) if self.self_term else square_norm(state)
        return heads * self.state_norm(norms, heads.shape[-1]).to(heads.dtype)


class FinalState(Readout):
    """o_i = S_n q_i: context tokens and queries read the final state (section 5).

    Args:
        num_heads: Heads of the layer.
        normalise: Replace the Frobenius norm of the state by a learned scale (section 4.3).
    """

    is_causal = False

    def __init__(self, num_heads: int, *, normalise: bool = False) -> None:
        super().__init__()
        self.state_norm = StateNorm(num_heads) if normalise else None

    def check(self, rule: UpdateRule) -> None:
        """Every rule has a final state, but `normalise` needs the norm of a matrix."""
        if self.state_norm is not None and rule.state_norms == "none":
            raise UnsupportedReadout(
                f"FinalState with normalise needs a matrix state of values alone, which "
                f"{type(rule).__name__} here does not have; leave normalise out."
            )

    def context(
        self, rule: UpdateRule, x: Streams, state: RuleState | None
    ) -> tuple[Float[Tensor, "b t h v"], RuleState]:
        """Write everything first, then read."""
        final = rule.fold(x, state)
        return self.query(rule, x, final), final

    def query(self, rule: UpdateRule, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """A plain read, without the query's own write and gate."""
        heads = rule.read(x.q, state)
        if self.state_norm is None:
            return heads
        return heads * self.state_norm(square_norm(state), heads.shape[-1]).to(heads.dtype)


class Bidirectional(Readout):
    """The block runs on the context and on its reversal with shared weights (section 4.2).

    Each direction has its own clock and convolution. Outputs and final states are averaged, and
    queries read the averaged state with their own write. This follows the authors' code; in the
    paper's text, both directions write into one state.

    Args:
        num_heads: Heads of the layer.
    """

    is_causal = False
    is_bidirectional = True

    def __init__(self, num_heads: int) -> None:
        super().__init__()

    def check(self, rule: UpdateRule) -> None:
        """The rule must provide prefix reads and a state that can be averaged."""
        if not (rule.has_prefix_reads and rule.has_matrix_state):
            raise UnsupportedReadout(
                f"Bidirectional readout averages the final states of two scans, which "
                f"{type(rule).__name__} does not allow; use tabicl_linear.readouts.FinalState, "
                "where every token reads the whole context already."
            )

    def context(
        self, rule: UpdateRule, x: Streams, state: RuleState | None
    ) -> tuple[Float[Tensor, "b t h v"], RuleState]:
        """One direction: every token reads the prefix that ends with itself."""
        return rule.scan(x, state)

    def query(self, rule: UpdateRule, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """Every query reads the averaged state and its own write."""
        return rule.peek(x, state)


def square_norm(state: RuleState) -> Float[Tensor, "b 1 h"]:
    """|S|_F^2 per head, the same for every token that reads it."""
    return matrix_of(state).square().sum((-1, -2)).unsqueeze(1)
