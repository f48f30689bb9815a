"""The stack of blocks: takes a context and returns states, takes queries and returns tokens."""

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch import nn

from tabicl_linear.backbone.block import Block
from tabicl_linear.backbone.long_context import HeldTokens, advance, fold
from tabicl_linear.backbone.two_axis import CellAttention
from tabicl_linear.errors import ConfigError, UnsupportedReadout
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.rule import at_least_float32, lifted
from tabicl_linear.kernels.state import MatrixState, state_shape, tensors
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.types import Float, Tensor


class Backbone(nn.Module):
    """Blocks in order, and an optional norm at the end.

    The residual stream is in at least float32, also under autocast.

    Args:
        blocks: The blocks, first to last.
        final_norm: Norm of the last block's output, or None.
        weave_states: Start every layer from a learned state plus the final state of the layer
            below (state weaving, section 4.2). A layer then depends on the whole context.
        learn_states: Start every layer from a learned state, the same for all sequences, unless
            initial states are passed.
        cell_attention: Layers of attention across the cells of a row; empty if rows have one token.
        cell_attention_every: Number of blocks from one such layer to the next; the first comes
            before the first block.

    Raises:
        ConfigError: The states of these mixers cannot be woven or learned.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        final_norm: nn.Module | None,
        *,
        weave_states: bool = False,
        learn_states: bool = False,
        cell_attention: Sequence[CellAttention] = (),
        cell_attention_every: int = 2,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.cell_attention = nn.ModuleList(cell_attention)
        self.cell_attention_every = cell_attention_every
        self.woven = nn.ParameterList()
        if weave_states:
            self.woven.extend(_learned_state(block, "woven") for block in blocks)
        self.learned = nn.ParameterList()
        if learn_states:
            self.learned.extend(_learned_state(block, "learned") for block in blocks)

    @property
    def is_causal(self) -> bool:
        """Whether no context token depends on tokens written after it, in any layer."""
        return not self.woven and all(block.readout.is_causal for block in self.layers())

    def fit(
        self,
        context: Float[Tensor, "b t d"],
        initial: Sequence[LayerState] | None = None,
        *,
        num_cells: int = 1,
    ) -> tuple[Float[Tensor, "b t d"], tuple[LayerState, ...]]:
        """Write the context, starting from `initial` if given; return hidden tokens and states.

        Args:
            context: Tokens, with the cells of a row consecutive in the batch.
            initial: States to start from; if None, the learned ones, or zero.
            num_cells: Cells of a row.
        """
        tokens = HeldTokens.of(context)
        states = self._pass(tokens, initial, num_cells, read_last=True)
        return self._normalise(tokens.slabs[0]), states

    def write(
        self,
        context: Float[Tensor, "b t d"],
        initial: Sequence[LayerState] | None = None,
        *,
        num_cells: int = 1,
    ) -> tuple[LayerState, ...]:
        """Write the context and return the states, without computing the last hidden tokens.

        A causal stack can read a long context with this, chunk after chunk, each starting from the
        states after the previous one, so that only one chunk is in memory.
        """
        return self._pass(HeldTokens.of(context), initial, num_cells, read_last=False)

    def write_held(
        self,
        context: HeldTokens,
        initial: Sequence[LayerState] | None = None,
        *,
        num_cells: int = 1,
    ) -> tuple[LayerState, ...]:
        """Write a context of several chunks and return the states; its tokens are changed in place.

        This is for stacks that are not causal: a block needs the whole context before its tokens
        read, so the blocks run one after the other. All hidden tokens are in memory once, and twice
        while a bidirectional block runs.
        """
        context.join_last()
        return self._pass(context, initial, num_cells, read_last=False)

    def _pass(
        self,
        tokens: HeldTokens,
        initial: Sequence[LayerState] | None,
        num_cells: int,
        *,
        read_last: bool,
    ) -> tuple[LayerState, ...]:
        """Take tokens through all blocks, in place; return the state of each block.

        Args:
            tokens: Hidden tokens of the context, or of its next chunk.
            initial: States to start from; if None, the learned ones, or zero.
            num_cells: Cells of a row.
            read_last: Whether the last block also computes hidden tokens, or only its state.
        """
        states = list[LayerState]()
        last = len(self.blocks) - 1
        starts = [None] * len(self.blocks) if initial is None else initial
        for i, (block, start) in enumerate(zip(self.layers(), starts, strict=True)):
            if self.woven:
                assert start is None, "woven states start from the layer below"
                start = _start(self.woven[i], tokens.slabs[0], states)
            elif self.learned and start is None:
                start = _start(self.learned[i], tokens.slabs[0])
            if self.cell_attention:
                tokens.replace(partial(self._mix_cells, i, num_cells=num_cells))
            if i < last or read_last:
                states.append(advance(block, tokens, start))
            else:
                states.append(fold(block, tokens, start))
        return tuple(states)

    def predict(
        self,
        queries: Float[Tensor, "b u d"],
        states: Sequence[LayerState],
        *,
        num_cells: int = 1,
    ) -> Float[Tensor, "b u d"]:
        """Let queries read the states, independently of each other; return their hidden tokens."""
        x = lifted(queries)
        for i, (block, state) in enumerate(zip(self.layers(), states, strict=True)):
            x = block.predict(self._mix_cells(i, x, num_cells), state)
        return self._normalise(x)

    def takes(self, states: Sequence[LayerState], device: torch.device) -> bool:
        """Whether the states have the number, shapes and device that this stack needs."""
        return len(states) == len(self.blocks) and all(
            state_shape(state.rule_state) == block.mixer.state_shape
            and all(tensor.device == device for tensor in tensors(state))
            for block, state in zip(self.layers(), states, strict=True)
        )

    def check_extensible(self) -> None:
        """Raise `UnsupportedReadout` if states cannot be extended by more tokens."""
        if not self.is_causal:
            raise UnsupportedReadout(
                "A fitted state can be extended only if every layer reads causally: here context "
                "tokens also read rows written after them, so earlier rows would have to be read "
                "again. Fit all rows at once, or use tabicl_linear.readouts.Causal."
            )

    def layers(self) -> list[Block]:
        """The blocks, first to last."""
        return cast(list[Block], list(self.blocks))

    def _mix_cells(self, layer: int, x: Tensor, num_cells: int) -> Tensor:
        index, rest = divmod(layer, self.cell_attention_every)
        if not self.cell_attention or rest:
            return x
        mixed: Tensor = self.cell_attention[index](x, num_cells)
        return mixed

    def _normalise(self, x: Tensor) -> Tensor:
        return x if self.final_norm is None else self.final_norm(x)


def _learned_state(block: Block, kind: str) -> nn.Parameter:
    """A learned initial state, drawn from N(0, 1) / key_dim; `kind` is for the error message."""
    rule = block.mixer.rule
    if not rule.has_matrix_state:
        raise ConfigError(
            f"initial_states={kind} starts layers from states that are matrices, and "
            f"{type(rule).__name__} has none; set initial_states to zero."
        )
    shape = block.mixer.state_shape
    return nn.Parameter(torch.randn(shape) / shape[-1])


def _start(learned: Tensor, x: Tensor, below: Sequence[LayerState] = ()) -> LayerState:
    """A learned state for every sequence of `x`, plus the state of the layer below, if any."""
    S = at_least_float32(learned).expand(x.shape[0], *learned.shape)
    if below:
        S = S + matrix_of(below[-1].rule_state)
    return LayerState(MatrixState(S), None, 0)
