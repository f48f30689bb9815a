"""In-context learners: the model itself, and wrappers around it that share its interface."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Bool, Float, Int, Tensor


class InContextLearner(Protocol):
    """Reads a context into a state, and predicts queries from the state."""

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
    ) -> Any:
        """Read labelled rows, and return the state."""

    def predict(self, state: Any, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""


class BlockState(NamedTuple):
    """The fitted blocks of a context.

    Attributes:
        states: One state for each block length, with the blocks of that length in its batch.
        num_blocks: Number of blocks of each state, per task.
        labels: Labels of these blocks, which tell the classes of each block.
    """

    states: tuple[Any, ...]
    num_blocks: tuple[int, ...]
    labels: tuple[Int[Tensor, "i r"], ...]


@dataclass(frozen=True)
class BlockEnsemble:
    """Splits a context into disjoint blocks and averages their logits (section 4.1, "3K").

    Rows are assigned to blocks at random and keep their order within a block; block lengths differ
    by at most one. Blocks of equal length are fitted as one batch. A context that fits into one
    block is not split.

    Attributes:
        learner: The learner that reads each block.
        max_rows: Maximum number of rows of a block (3,000 in the paper).
        abstain: Ignore the logits of a class from blocks that lack it. This is for learners that
            give absent classes zero probability: one such block would decide for all.
    """

    learner: InContextLearner
    max_rows: int = 3000
    abstain: bool = False

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ConfigError(f"max_rows={self.max_rows} must be at least 1.")

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
    ) -> BlockState:
        """Fit every block."""
        states, counts, labels = [], [], []
        for rows in self.blocks(x.shape[1]):
            count = len(rows)
            labels.append(y[:, rows].flatten(0, 1))
            state = self.learner.fit(
                x[:, rows].flatten(0, 1),
                labels[-1],
                categorical=None
                if categorical is None
                else categorical.repeat_interleave(count, dim=0),
            )
            states.append(state)
            counts.append(count)
        return BlockState(tuple(states), tuple(counts), tuple(labels))

    def predict(self, state: BlockState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Mean logits over all blocks; with `abstain`, over the blocks that have the class.

        A class is more frequent in the blocks that have it than in all of them, by the ratio of the
        two numbers of blocks; the mean is corrected for that. Classes that no block has get the
        mean over all blocks.
        """
        blocks = sum(state.num_blocks)
        total, evidence, having = (torch.zeros((), device=x.device) for _ in range(3))
        for fitted, count, labels in zip(*state, strict=True):
            logits = self.learner.predict(fitted, x.repeat_interleave(count, dim=0))
            total = total + logits.unflatten(0, (-1, count)).sum(1)
            if self.abstain:
                has = torch.zeros_like(logits[:, 0], dtype=torch.bool).scatter(1, labels, True)
                logs = logits.log_softmax(-1).where(has[:, None], 0.0)
                evidence = evidence + logs.unflatten(0, (-1, count)).sum(1)
                having = having + has.unflatten(0, (-1, count)).sum(1, keepdim=True)
        mean = total / blocks
        if not self.abstain:
            return mean
        return torch.where(having > 0, evidence / having + (having / blocks).log(), mean)

    def blocks(self, num_rows: int) -> list[Int[Tensor, "i r"]]:
        """Row indices of the blocks, one tensor for each block length; the same at every call."""
        count = math.ceil(num_rows / self.max_rows)
        if count == 1:
            return [torch.arange(num_rows).unsqueeze(0)]
        order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(num_rows))
        short, longer = num_rows // count, num_rows % count
        cut = longer * (short + 1)
        pieces = order[:cut].view(longer, short + 1), order[cut:].view(count - longer, short)
        return [piece.sort(dim=1).values for piece in pieces if len(piece)]
