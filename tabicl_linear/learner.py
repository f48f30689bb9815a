"""In-context learners: the model itself, and wrappers around it that share its interface."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Bool, Float, Int, Tensor


class InContextLearner(Protocol):
    """Fits a context into a state and predicts queries from the state."""

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
    ) -> Any:
        """Read labelled rows."""

    def predict(self, state: Any, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""


class BlockState(NamedTuple):
    """Fitted blocks of a context.

    Attributes:
        states: One state for each block length, its blocks side by side in the batch.
        num_blocks: Blocks of each state.
        labels: Their labels, where they decide which blocks have a class.
    """

    states: tuple[Any, ...]
    num_blocks: tuple[int, ...]
    labels: tuple[Int[Tensor, "i r"], ...]


@dataclass(frozen=True)
class BlockEnsemble:
    """Cuts a context into disjoint blocks and averages their logits (section 4.1, "3K").

    Rows are assigned to blocks at random, keep their order within a block, and block lengths differ
    by at most one. Blocks of equal length are fitted as one batch. A context that fits into one
    block is not divided.

    Attributes:
        learner: The learner that reads each block.
        max_rows: Maximum number of rows of a block (3,000 in the paper).
        abstain: Let blocks that lack a class say nothing about it: for learners that exclude such
            classes, of which one block would decide for all.
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
        """Mean logits over all blocks; with `abstain` over those that have the class.

        The class is as many times too frequent in these as there are blocks for each of them, which
        is taken back. Classes that no block has keep their mean.
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
