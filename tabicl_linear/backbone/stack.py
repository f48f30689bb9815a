"""The stack of blocks: context in, states out; queries in, hidden tokens out."""

from collections.abc import Sequence
from typing import cast

from torch import nn

from tabicl_linear.backbone.block import Block
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.types import Float, Tensor


class Backbone(nn.Module):
    """Blocks in order and an optional norm at the end.

    Args:
        blocks: The blocks, first to last.
        final_norm: Norm of the last block's output, or None.
    """

    def __init__(self, blocks: Sequence[Block], final_norm: nn.Module | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm

    def fit(
        self, context: Float[Tensor, "b t d"], initial: Sequence[LayerState] | None = None
    ) -> tuple[Float[Tensor, "b t d"], tuple[LayerState, ...]]:
        """Write the context, after that of `initial` where given; hidden tokens and states."""
        starts = [None] * len(self.blocks) if initial is None else initial
        x, states = context, []
        for block, start in zip(self.layers(), starts, strict=True):
            x, state = block.fit(x, start)
            states.append(state)
        return self._normalise(x), tuple(states)

    def predict(
        self, queries: Float[Tensor, "b u d"], states: Sequence[LayerState]
    ) -> Float[Tensor, "b u d"]:
        """Read the states; queries are independent of each other."""
        x = queries
        for block, state in zip(self.layers(), states, strict=True):
            x = block.predict(x, state)
        return self._normalise(x)

    def layers(self) -> list[Block]:
        """The blocks, first to last."""
        return cast(list[Block], list(self.blocks))

    def _normalise(self, x: Tensor) -> Tensor:
        return x if self.final_norm is None else self.final_norm(x)
