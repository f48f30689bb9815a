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

    States and reads have at least float32 precision: float32 for 16-bit and float32 inputs, float64
    for float64 inputs. A sum over many thousand tokens exceeds the range of float16 and the
    precision of bfloat16; the caller may round it after the norm of its head.

    If there are no tokens, the state is unchanged and there are no reads. Reads of an empty state
    are zero.

    Attributes:
        has_prefix_reads: Whether `scan` and `peek` exist.
        has_matrix_state: Whether the state is one matrix in which reads are linear, so that states
            can be averaged, scaled and passed on.
        erases: Whether writing a token with rate beta first removes a share beta of what its key
            reads from the state (delta rules). An earlier write with the same key is then scaled
            by 1 - beta.
        state_norms: The states whose Frobenius norm is available. "none": the state is not a
            matrix, or mixes values with sums of keys. "final": the final state. "prefix": also the
            state of every prefix, by `prefix_square_norms` and `peek_square_norms`.
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
        """Only the final state S_n."""

    @abstractmethod
    def read(self, q: Float[Tensor, "b t h k"], state: RuleState) -> Float[Tensor, "b t h v"]:
        """Read o = S q for every token; nothing is written."""

    @abstractmethod
    def peek(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h v"]:
        """What each token would read after writing only itself: (state + own token) q."""

    def prefix_square_norms(
        self, x: Streams, state: RuleState | None = None
    ) -> Float[Tensor, "b t h"]:
        """|S_i|_F^2 of the state that every token of `scan` reads."""
        raise UnsupportedReadout(f"{type(self).__name__} has no norms of prefix states.")

    def peek_square_norms(self, x: Streams, state: RuleState) -> Float[Tensor, "b t h"]:
        """|S|_F^2 of the state that every token of `peek` reads."""
        raise UnsupportedReadout(f"{type(self).__name__} has no norms of prefix states.")


class Kernel(NamedTuple):
    """An implementation of `scan` and `fold` for a rule with a matrix state.

    Both functions take the rule's streams (16-bit inputs unchanged), the initial state S [b h v k]
    in at least float32, and `size`, the tokens of a chunk, which an implementation without chunks
    may ignore. The functions `scan` and `fold` in the rule's module have the same arguments.

    Attributes:
        scan: Returns all prefix reads [b t h v] and the final state, in the dtype of S.
        fold: Returns only the final state; queries are ignored.
    """

    scan: Callable[..., tuple[Tensor, Tensor]]
    fold: Callable[..., Tensor]


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in the precision of states: float64 stays, everything else becomes float32."""
    return x if x.dtype == torch.float64 else x.float()


def computed_in(x: Streams) -> torch.dtype:
    """The dtype that a kernel computes in: the narrowest of queries, keys and values.

    Under autocast these have different dtypes, and values that were rounded to 16 bits do not
    become more precise in float32.
    """
    return min((x.q.dtype, x.k.dtype, x.v.dtype), key=lambda dtype: dtype.itemsize)


def lifted(x: Tensor) -> Tensor:
    """`x` in at least float32 if autocast is on; unchanged otherwise, as in a 16-bit model."""
    return at_least_float32(x) if torch.is_autocast_enabled(x.device.type) else x


def full_precision(x: Tensor) -> torch.autocast:
    """A context without autocast on `x`'s device, so that states keep their precision."""
    return torch.autocast(x.device.type, enabled=False)
