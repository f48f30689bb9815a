"""The contract of every update rule: scan, fold, read, peek."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels.state import RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor

StateNorms = Literal["none", "final", "prefix"]


class UpdateRule(ABC):
    """How a layer-local state is built from tokens and read. Pure: no parameters, no mutation.

    States and what is read of them have at least float32 precision: float32 for half and float32
    inputs, float64 for float64 inputs. A sum over many thousand tokens leaves the range of float16
    and the digits of bfloat16; it is rounded after the norm of its head, by who takes it.

    Without tokens nothing is written: the state stays, and there are no reads. What has never been
    written is read as zero.

    Attributes:
        has_prefix_reads: `scan` and `peek` exist.
        has_matrix_state: The state is one matrix that reads are linear in, so that states can
            be averaged, scaled and passed on.
        erases: Writing a token with rate beta first takes beta of what its key recalls out of the
            state (delta rules), so that of an earlier write with the same key 1 - beta is left.
        state_norms: Of which states the Frobenius norm can be had: of none, because the state is no
            matrix or mixes values with sums of keys; of the final one; of every prefix, by
            `prefix_square_norms` and `peek_square_norms`.
    """

    has_prefix_reads: ClassVar[bool] = True
    has_matrix_state: ClassVar[bool] = True
    erases: ClassVar[bool] = False
    state_norms: StateNorms = "none"

    @abstractmethod
    def scan(
        self, x: Streams, state: RuleState | None = None
    ) -> tuple[Float[Tensor, "b t h v"], RuleState]:
        """Write all tokens in order. Returns o_i = S_i q_i for every i, and S_n."""

    @abstractmethod
    def fold(self, x: Streams, state: RuleState | None = None) -> RuleState:
        """The final state S_n alone."""

    @abstractmethod
    def read(self, q: Float[Tensor, "b t h k"], state: RuleState) -> Float[Tensor, "b t h v"]:
        """Read o = S q for every token; nothing is written."""

    @abstractmethod
    def peek(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """What each token would read after writing itself alone: (state + own token) q."""

    def prefix_square_norms(
        self, x: Streams, state: RuleState | None = None
    ) -> Float[Tensor, "b t h"]:
        """|S_i|_F^2 of the state that every token of `scan` reads."""
        raise UnsupportedReadout(f"{type(self).__name__} has no norms of prefix states.")

    def peek_square_norms(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h"]:
        """|S|_F^2 of the state that every token of `peek` reads."""
        raise UnsupportedReadout(f"{type(self).__name__} has no norms of prefix states.")


class Kernel(NamedTuple):
    """One implementation of what a rule does along a sequence; rules with a matrix state have one.

    Both functions take the rule's streams (16-bit inputs as they are), the initial state S
    [b h v k] in at least float32 and `size`, the tokens of a chunk, which an implementation without
    chunks may ignore: those of `scan` and `fold` in the module of the rule.

    Attributes:
        scan: Returns all prefix reads [b t h v] and the final state, in the dtype of S.
        fold: Returns the final state alone; queries are not looked at.
    """

    scan: Callable[..., tuple[Tensor, Tensor]]
    fold: Callable[..., Tensor]


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in the precision of states: float64 stays, everything else becomes float32."""
    return x if x.dtype == torch.float64 else x.float()


def computed_in(x: Streams) -> torch.dtype:
    """The dtype that a kernel works in: the narrowest of queries, keys and values.

    Under autocast they come in different dtypes, and what has been rounded to 16 bits does not
    become more precise by being computed with in float32.
    """
    return min((x.q.dtype, x.k.dtype, x.v.dtype), key=lambda dtype: dtype.itemsize)


def lifted(x: Tensor) -> Tensor:
    """`x` in float32 where autocast has lowered it; a model in half precision throughout stays."""
    return at_least_float32(x) if torch.is_autocast_enabled(x.device.type) else x


def full_precision(x: Tensor) -> torch.autocast:
    """Context in which autocast does not lower the precision of states on `x`'s device."""
    return torch.autocast(x.device.type, enabled=False)
