"""One batch of tasks, as it travels from the prior to the model."""

from typing import NamedTuple

import torch

from tabicl_linear.errors import DataError
from tabicl_linear.types import Bool, Float, Int, Tensor


class TaskBatch(NamedTuple):
    """Tasks of one shape. The first `num_context` rows are context, the others are queries.

    Attributes:
        x: Features; may hold NaN.
        y: Class indices.
        categorical: Which columns hold category codes.
        num_context: Context rows, the same for all tasks of the batch.
        index: Position in the stream; identifies the batch together with seed, stage and rank.
    """

    x: Float[Tensor, "b n m"]
    y: Int[Tensor, "b n"]
    categorical: Bool[Tensor, "b m"]
    num_context: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here

    def check_split(self) -> None:
        """Raise `DataError` if there is no context row, or no query row."""
        if not 1 <= self.num_context < self.x.shape[1]:
            raise DataError(
                f"num_context={self.num_context} of {self.x.shape[1]} rows leaves no context or no "
                "query row; training needs at least one of each."
            )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "TaskBatch":
        """The same batch on `device`."""
        return self._replace(
            x=self.x.to(device, non_blocking=non_blocking),
            y=self.y.to(device, non_blocking=non_blocking),
            categorical=self.categorical.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> "TaskBatch":
        """The same batch in page-locked memory (called by `DataLoader(pin_memory=True)`)."""
        return self._replace(
            x=self.x.pin_memory(),
            y=self.y.pin_memory(),
            categorical=self.categorical.pin_memory(),
        )
