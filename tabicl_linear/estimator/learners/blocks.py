"""Reads a long context in blocks: a state for each, and the mean of their predictions."""

from typing import Any, NamedTuple

import torch

from tabicl_linear.estimator.learners.interface import ComposedLearner, ContextLearner
from tabicl_linear.types import Bool, Float, Int, Tensor


class BlockStates(NamedTuple):
    """The learner's state of each block, and which classes occur in it."""

    blocks: tuple[Any, ...]
    present: Bool[Tensor, "b k y"]


class ContextBlocks(ComposedLearner):
    """A learner that reads a long context as several short ones (section 4.1 of the paper, "3K").

    Each class is spread evenly over the blocks, unlike in `tabicl_linear.learner.BlockEnsemble`,
    which deals rows to blocks at random. A class that some blocks lack is predicted by the others.
    The lengths of blocks differ by at most one row.
    """

    def __init__(self, learner: ContextLearner, num_blocks: int) -> None:
        super().__init__(learner)
        self.num_blocks = num_blocks

    def fit(self, x: Float[Tensor, "b c m"], y: Int[Tensor, "b c"], **options: Any) -> BlockStates:
        """The states after labelled rows, at least one for each block; see `ContextLearner.fit`."""
        states, present = [], []
        order = y.argsort(dim=1, stable=True)  # class by class, and in each in the rows' order
        num_classes = int(y.max()) + 1
        for first in range(self.num_blocks):
            rows = order[:, first :: self.num_blocks].sort(dim=1).values
            labels = y.gather(1, rows)
            block = x.gather(1, rows.unsqueeze(-1).expand(-1, -1, x.shape[2]))
            states.append(self.learner.fit(block, labels, **options))
            classes = torch.zeros(len(y), num_classes, dtype=torch.bool, device=y.device)
            present.append(classes.scatter(1, labels, True))
        return BlockStates(tuple(states), torch.stack(present, dim=1))

    def predict(self, state: BlockStates, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Mean log-probabilities of the classes over the blocks, up to a constant in each row.

        A class that only some blocks have is too frequent in these, by the number of all blocks
        over the number of these; its log-probability is corrected for that.
        """
        num_classes = state.present.shape[2]
        total = torch.zeros((), device=x.device)
        for index, block in enumerate(state.blocks):
            logs = self.learner.predict(block, x)[..., :num_classes].log_softmax(-1)
            # Masked, not multiplied by 0: the logs of an absent class may be minus infinity.
            total = total + logs.masked_fill(~state.present[:, None, index], 0)
        count = state.present.sum(1).unsqueeze(1).to(total.dtype)
        return total / count + (count / len(state.blocks)).log()
