"""What the ensemble asks of a learner."""

from typing import Protocol, Self, TypeVar

import torch

from tabicl_linear.types import Bool, Float, Int, Tensor

State = TypeVar("State")


class ContextLearner(Protocol[State]):
    """Reads labelled rows into a state, a tree of tensors, and predicts other rows from it."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def max_columns(self) -> int:
        """Columns that it takes at most."""

    def to(self, device: torch.device, /) -> Self:
        """Move it; returns itself."""

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"],
        rows_per_chunk: int,
    ) -> State:
        """The state after labelled rows, class indices from 0; see `InContextModel.fit`."""

    def predict(self, state: State, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""
