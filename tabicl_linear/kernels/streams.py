"""Per-head inputs of an update rule."""

from typing import NamedTuple

from tabicl_linear.types import Float, Tensor


class Streams(NamedTuple):
    """The inputs that a mixer passes to its rule, in token order.

    Attributes:
        q: Queries, already scaled and feature-mapped.
        k: Keys, already normalised or feature-mapped.
        v: Values.
        beta: Effective write rates; None if the rule writes every token with weight one.
        log_decay: log alpha_t <= 0; last dimension 1 (one gate per head) or k (one per channel).
    """

    q: Float[Tensor, "b t h k"]
    k: Float[Tensor, "b t h k"]
    v: Float[Tensor, "b t h v"]
    beta: Float[Tensor, "b t h"] | None = None
    log_decay: Float[Tensor, "b t h g"] | None = None
