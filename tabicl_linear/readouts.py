"""Readouts: which state a token reads."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import nn

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels.memory import Memory
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor


class Readout(nn.Module, ABC):
    """How context tokens and queries read the memory of a rule; one per layer.

    Attributes:
        is_causal: A context token reads nothing written after it. Only then can a fitted state be
            extended by more rows, and only then may a row's own label stand in the context
            (multi-target training).
    """

    is_causal: ClassVar[bool]

    @abstractmethod
    def check(self, rule: UpdateRule) -> None:
        """Raise `UnsupportedReadout` where the rule cannot serve this readout."""

    @abstractmethod
    def context(
        self, rule: UpdateRule, x: Streams, memory: Memory | None
    ) -> tuple[Float[Tensor, "b t h v"], Memory]:
        """Write the context; what its tokens read, and the final memory."""

    @abstractmethod
    def query(self, rule: UpdateRule, x: Streams, memory: Memory) -> Float[Tensor, "b t h v"]:
        """What each query reads, independently of all others; the memory stays as it is."""


ReadoutFactory = Callable[[int], Readout]
"""Makes the readout of one layer from num_heads."""


class Causal(Readout):
    """o_i = S_i q_i: a token reads everything written before it, and itself (section 3.2).

    Args:
        num_heads: Heads of the layer.
        self_term: Whether a query also reads its own write, as the authors' recurrent models do;
            then a query equals an appended token. Their softmax and own linear attention do not.
    """

    is_causal = True

    def __init__(self, num_heads: int, *, self_term: bool = True) -> None:
        super().__init__()
        self.self_term = self_term

    def check(self, rule: UpdateRule) -> None:
        """The rule must give the read of every prefix."""
        if not rule.has_prefix_reads:
            raise UnsupportedReadout(
                f"Causal readout needs prefix reads, which {type(rule).__name__} does not provide; "
                "use tabicl_linear.readouts.FinalState."
            )

    def context(
        self, rule: UpdateRule, x: Streams, memory: Memory | None
    ) -> tuple[Float[Tensor, "b t h v"], Memory]:
        """Every token reads the prefix that ends with itself."""
        return rule.scan(x, memory)

    def query(self, rule: UpdateRule, x: Streams, memory: Memory) -> Float[Tensor, "b t h v"]:
        """Every query reads the context's memory, with its own write where `self_term` is set."""
        return rule.step(x, memory) if self.self_term else rule.read(x.q, memory)


class FinalState(Readout):
    """o_i = S_n q_i: context tokens and queries alike read the final state (section 5).

    Args:
        num_heads: Heads of the layer.
    """

    is_causal = False

    def __init__(self, num_heads: int) -> None:
        super().__init__()

    def check(self, rule: UpdateRule) -> None:
        """Every rule has a final memory."""

    def context(
        self, rule: UpdateRule, x: Streams, memory: Memory | None
    ) -> tuple[Float[Tensor, "b t h v"], Memory]:
        """Write everything first, then read."""
        final = rule.fold(x, memory)
        return rule.read(x.q, final), final

    def query(self, rule: UpdateRule, x: Streams, memory: Memory) -> Float[Tensor, "b t h v"]:
        """A plain read: no own write and no own gate."""
        return rule.read(x.q, memory)
