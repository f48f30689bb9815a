"""One residual block: mixer, readout and feed-forward."""

from typing import NamedTuple

import torch
from torch import nn

from tabicl_linear.kernels.chosen import chosen
from tabicl_linear.kernels.state import RuleState, map_tensors
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import LayerState, SequenceMixer
from tabicl_linear.readouts import Readout
from tabicl_linear.types import Float, Int, Tensor


class Projected(NamedTuple):
    """Tokens projected to the inputs of the rule.

    Attributes:
        inputs: Tokens as the mixer sees them, after the norm if it comes first.
        streams: Inputs of the rule.
        conv_inputs: The last inputs of the convolution, for the next tokens; None without one.
    """

    inputs: Float[Tensor, "b t d"]
    streams: Streams
    conv_inputs: Float[Tensor, "b w d"] | None


class Block(nn.Module):
    """x + mixer(norm(x)), then x + feed_forward(norm(x)); or the norm after each sum.

    Args:
        mixer: Sequence mixer of this layer.
        readout: Determines which state the tokens read.
        feed_forward: Token-wise layer; None for a block with only the mixer.
        norms: Norms of the mixer and of the feed-forward layer.
        norm_first: Whether norms come before mixer and feed-forward layer (all recurrent models) or
            after the sums (the authors' softmax layers).
    """

    def __init__(
        self,
        mixer: SequenceMixer,
        readout: Readout,
        *,
        feed_forward: nn.Module | None,
        norms: tuple[nn.Module, nn.Module],
        norm_first: bool,
    ) -> None:
        super().__init__()
        readout.check(mixer.rule)
        self.mixer = mixer
        self.readout = readout
        self.mixer_norm = norms[0]
        self.feed_forward = feed_forward
        self.feed_forward_norm = None if feed_forward is None else norms[1]
        self.norm_first = norm_first

    def fit(
        self, x: Float[Tensor, "b t d"], state: LayerState | None = None
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        """Write the tokens after those of `state`, if any; return their new ones and the state."""
        if not self.readout.is_bidirectional:
            return self.write(x, state)
        # Both directions in one pass, concatenated along the batch.
        twice = None if state is None else map_tensors(lambda z: torch.cat([z, z]), state)
        both, states = self.write(torch.cat([x, x.flip(1)]), twice)
        forward, backward = both.chunk(2)
        mean = map_tensors(lambda z: z.unflatten(0, (2, -1)).mean(0), states)
        return (forward + backward.flip(1)) / 2, mean

    def write(
        self, x: Float[Tensor, "b t d"], state: LayerState | None = None
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        """Write the tokens in one direction; return their new hidden tokens and the state."""
        projected = self._project(x, state, written=True)
        before = _rule_state(state)
        heads, rule_state = self.readout.context(self.mixer.rule, projected.streams, before)
        after = LayerState(rule_state, projected.conv_inputs, _clock(state) + x.shape[1])
        return chosen(finish)(self, x, heads, projected), after

    def fold(self, x: Float[Tensor, "b t d"], state: LayerState | None = None) -> LayerState:
        """The state that `write` returns, without the new hidden tokens."""
        projected = self._project(x, state, written=True)
        rule_state = self.mixer.rule.fold(projected.streams, _rule_state(state))
        return LayerState(rule_state, projected.conv_inputs, _clock(state) + x.shape[1])

    def reread(
        self, x: Float[Tensor, "b t d"], before: LayerState | None, rule_state: RuleState
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        """The second pass over tokens that have been folded: now they read the final state.

        Args:
            x: The tokens.
            before: Convolution inputs and clock just before the tokens.
            rule_state: The state that they read.

        Returns:
            The new hidden tokens, and the value of `before` for the tokens that follow.
        """
        projected = self._project(x, before, written=False)
        heads = self.readout.query(self.mixer.rule, projected.streams, rule_state)
        after = LayerState(rule_state, projected.conv_inputs, _clock(before) + x.shape[1])
        return chosen(finish)(self, x, heads, projected), after

    def predict(self, x: Float[Tensor, "b u d"], state: LayerState) -> Float[Tensor, "b u d"]:
        """Let queries read the state; all have the same clock, the number of tokens written."""
        positions = torch.full((x.shape[1],), state.num_tokens, device=x.device)
        projected = chosen(project)(self, x, positions, state.conv_inputs, independent=True)
        self.mixer.show_streams(projected.streams, positions, written=False)
        heads = self.readout.query(self.mixer.rule, projected.streams, state.rule_state)
        return chosen(finish)(self, x, heads, projected)

    def _project(self, x: Tensor, state: LayerState | None, *, written: bool) -> Projected:
        count = _clock(state)
        positions = torch.arange(count, count + x.shape[1], device=x.device)
        conv_inputs = None if state is None else state.conv_inputs
        projected = chosen(project)(self, x, positions, conv_inputs, independent=False)
        # Hooks are called here, as `project` may be compiled and hooks are arbitrary Python.
        self.mixer.show_streams(projected.streams, positions, written=written)
        return projected


def _rule_state(state: LayerState | None) -> RuleState | None:
    return None if state is None else state.rule_state


def _clock(state: LayerState | None) -> int:
    return 0 if state is None else state.num_tokens


def project(
    block: Block,
    x: Float[Tensor, "b t d"],
    positions: Int[Tensor, " t"],
    conv_inputs: Float[Tensor, "b w d"] | None,
    *,
    independent: bool,
) -> Projected:
    """Norm (if it comes first) and projections of the mixer; arguments as `SequenceMixer.project`.

    This and `finish` are all that a block computes token by token. They are functions so that a
    backend can run them through torch.compile. The rule between them has its own kernels.
    """
    inputs = block.mixer_norm(x) if block.norm_first else x
    return Projected(
        inputs, *block.mixer.project(inputs, positions, conv_inputs, independent=independent)
    )


def finish(
    block: Block, x: Float[Tensor, "b t d"], heads: Float[Tensor, "b t h v"], projected: Projected
) -> Float[Tensor, "b t d"]:
    """Output of the mixer, sums, norms and feed-forward layer.

    Args:
        block: The block.
        x: The tokens that entered it.
        heads: The values that they read.
        projected: The same tokens, projected.
    """
    mixed = block.mixer.output(heads, projected.streams, projected.inputs)
    x = x + mixed if block.norm_first else block.mixer_norm(x + mixed)
    if block.feed_forward is None or block.feed_forward_norm is None:
        return x
    if block.norm_first:
        return x + block.feed_forward(block.feed_forward_norm(x))
    return block.feed_forward_norm(x + block.feed_forward(x))
