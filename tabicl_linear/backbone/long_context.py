"""Runs one block over a context that is split into chunks.

The readout determines the order. Causal: chunk after chunk, with the state carried over. Final
state: all chunks are folded before any token reads, so every chunk is processed, and projected,
twice, which costs less than holding queries and gates of all tokens. Bidirectional: once in each
direction. Results are those of the unsplit sequence up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from pathlib import Path

import torch

from tabicl_linear.backbone.block import Block
from tabicl_linear.backbone.spill import Spilled
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.rule import lifted
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.types import Float, Tensor

SLAB_BYTES = 1 << 25
"""Chunks are joined into tensors of at least this size, which allocators return to the system. The
gaps that freed small tensors leave are rarely reused and would double the memory."""


class HeldTokens:
    """The hidden tokens of a context, in slabs of several chunks, in at least float32.

    With gradients enabled, tensors are not modified in place; a slab is freed once its replacement
    is complete.

    Args:
        spill: Folder for a temporary file that holds the tokens, which then cannot have gradients;
            None to hold them in memory.
    """

    def __init__(self, spill: Path | None = None) -> None:
        self._spill = spill
        self._pending: list[Tensor] = []
        self.slabs = self._empty()
        self.chunk_length = 0

    @classmethod
    def of(cls, context: Float[Tensor, "b t d"]) -> "HeldTokens":
        """Hold a context as a single chunk."""
        tokens = cls()
        tokens.append(context)
        tokens.join_last()
        return tokens

    def append(self, chunk: Float[Tensor, "b _t d"]) -> None:
        """Hold the next chunk; all chunks but the last are equally long."""
        chunk = lifted(chunk)
        self.chunk_length = self.chunk_length or chunk.shape[1]
        self._pending.append(chunk)
        if len(self._pending) * chunk.nbytes >= SLAB_BYTES:
            self.join_last()

    def join_last(self) -> None:
        """Make a slab of the pending chunks; must be called once all chunks are appended."""
        if self._pending:
            self.slabs.append(_joined(self._pending))
            self._pending = []

    def __iter__(self) -> Iterator[Float[Tensor, "b _t d"]]:
        for slab in self.slabs:
            yield from slab.split(self.chunk_length, dim=1)

    def backwards(self) -> Iterator[Float[Tensor, "b _t d"]]:
        """Chunks of the reversed sequence."""
        for slab in reversed(self.slabs):
            yield from slab.flip(1).split(self.chunk_length, dim=1)

    def replace(self, step: Callable[[Tensor], Tensor]) -> None:
        """Replace every chunk by `step(chunk)`, in order."""
        for i in range(len(self.slabs)):
            slab = self.slabs[i]
            if torch.is_grad_enabled() or slab.shape[1] <= self.chunk_length:
                self.slabs[i] = self._stepped(slab, step)
                continue
            # A slab of several chunks is our own copy, so it may be changed in place, which is
            # faster than allocating a new one.
            for chunk in slab.split(self.chunk_length, dim=1):
                chunk.copy_(step(chunk))
            self.slabs[i] = slab

    def replace_by_mean(
        self, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]
    ) -> None:
        """Replace every chunk by the mean of two steps, the second of which runs from the end.

        All tokens are held twice meanwhile, since the second step still needs the original ones.
        """
        steps = self._empty()
        steps.extend(self._stepped(slab, forward) for slab in self.slabs)
        for i in reversed(range(len(self.slabs))):
            reverse = self._stepped(self.slabs[i].flip(1), backward).flip(1)
            self.slabs[i] = (steps.pop() + reverse) / 2

    def _empty(self) -> MutableSequence[Tensor]:
        return [] if self._spill is None else Spilled(self._spill)

    def _stepped(self, slab: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
        return _joined([step(chunk) for chunk in slab.split(self.chunk_length, dim=1)])


def advance(block: Block, tokens: HeldTokens, start: LayerState | None) -> LayerState:
    """Replace the tokens by the block's new hidden tokens; return the state after all of them.

    Args:
        block: The block.
        tokens: Hidden tokens of the context, changed in place.
        start: State before the first token; None at the start of a sequence.
    """
    if len(tokens.slabs) == 1 and tokens.slabs[0].shape[1] <= tokens.chunk_length:
        tokens.slabs[0], state = block.fit(tokens.slabs[0], start)
        return state
    if block.readout.is_bidirectional:
        forward, backward = _Run(block, start), _Run(block, start)
        tokens.replace_by_mean(forward.write, backward.write)
        return _mean(forward.last(), backward.last())
    run = _Run(block, start)
    if block.readout.is_causal:
        tokens.replace(run.write)
        return run.last()
    final = fold(block, tokens, start)
    tokens.replace(lambda x: run.reread(x, final))
    return final


def fold(block: Block, tokens: HeldTokens, start: LayerState | None) -> LayerState:
    """Only the state that `advance` returns; for a stack's last block, whose output is unused."""
    forward = _Run(block, start).fold(tokens)
    if not block.readout.is_bidirectional:
        return forward
    return _mean(forward, _Run(block, start).fold(tokens.backwards()))


class _Run:
    """One pass of a block over the chunks of a context, which carries the state along."""

    def __init__(self, block: Block, state: LayerState | None) -> None:
        self.block = block
        self.state = state

    def write(self, x: Tensor) -> Tensor:
        x, self.state = self.block.write(x, self.state)
        return x

    def reread(self, x: Tensor, final: LayerState) -> Tensor:
        x, self.state = self.block.reread(x, self.state, final.rule_state)
        return x

    def fold(self, chunks: Iterable[Tensor]) -> LayerState:
        for x in chunks:
            self.state = self.block.fold(x, self.state)
        return self.last()

    def last(self) -> LayerState:
        assert self.state is not None, "a context without tokens"
        return self.state


def _joined(chunks: list[Tensor]) -> Tensor:
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1)


def _mean(a: LayerState, b: LayerState) -> LayerState:
    """Mean of the states of both directions; defined only for matrix states."""
    conv_inputs = (
        None
        if a.conv_inputs is None or b.conv_inputs is None
        else (a.conv_inputs + b.conv_inputs) / 2
    )
    rule_state = MatrixState((matrix_of(a.rule_state) + matrix_of(b.rule_state)) / 2)
    return LayerState(rule_state, conv_inputs, a.num_tokens)
