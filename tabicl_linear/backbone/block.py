"""One residual block: mixer, readout and feed-forward."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import nn

from tabicl_linear.kernels.state import RuleState, map_tensors
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import LayerState, SequenceMixer
from tabicl_linear.readouts import Readout
from tabicl_linear.types import Float, Int, Tensor


class Projected(NamedTuple):
    """Tokens on their way into the rule.

    Attributes:
        inputs: Tokens as the mixer sees them.
        streams: Inputs of the rule.
        conv_inputs: What the convolution keeps of these tokens, if there is one.
    """

    inputs: Float[Tensor, "b t d"]
    streams: Streams
    conv_inputs: Float[Tensor, "b w d"] | None


class Block(nn.Module):
    """x + mixer(norm(x)), then x + feed_forward(norm(x)); or the norm after each sum.

    Args:
        mixer: Sequence mixer of this layer.
        readout: Which state its tokens read.
        feed_forward: Token-wise layer, or None for a block of the mixer alone.
        norms: Norm of the mixer and of the feed-forward layer.
        norm_first: Pre-norm residual branches (all recurrent models) instead of post-norm (the
            authors' softmax layers).

    Attributes:
        compiles: Its token-wise parts go through torch.compile while training.
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
        self.compiles = False

    def fit(
        self, x: Float[Tensor, "b t d"], state: LayerState | None = None
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        """Write the tokens, after those of `state` where one is given."""
        if not self.readout.is_bidirectional:
            return self.write(x, state)
        # Both directions in one pass, side by side in the batch.
        twice = None if state is None else map_tensors(lambda z: torch.cat([z, z]), state)
        both, states = self.write(torch.cat([x, x.flip(1)]), twice)
        forward, backward = both.chunk(2)
        mean = map_tensors(lambda z: z.unflatten(0, (2, -1)).mean(0), states)
        return (forward + backward.flip(1)) / 2, mean

    def write(
        self, x: Float[Tensor, "b t d"], state: LayerState | None = None
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        """Write the tokens in one direction; what becomes of them, and the state."""
        came = self._project(x, state)
        heads, rule_state = self.readout.context(self.mixer.rule, came.streams, _rule_state(state))
        after = LayerState(rule_state, came.conv_inputs, _clock(state) + x.shape[1])
        return self._dense().finish(self, x, heads, came), after

    def fold(self, x: Float[Tensor, "b t d"], state: LayerState | None = None) -> LayerState:
        """The state that `write` returns, where what becomes of the tokens is not needed."""
        came = self._project(x, state)
        rule_state = self.mixer.rule.fold(came.streams, _rule_state(state))
        return LayerState(rule_state, came.conv_inputs, _clock(state) + x.shape[1])

    def reread(
        self, x: Float[Tensor, "b t d"], before: LayerState | None, rule_state: RuleState
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        """What becomes of tokens that have been folded and now read a final memory.

        Args:
            x: The tokens.
            before: Convolution and clock just before them.
            rule_state: What they read.

        Returns:
            Their new hidden tokens, and `before` of the tokens that follow.
        """
        came = self._project(x, before)
        heads = self.readout.query(self.mixer.rule, came.streams, rule_state)
        after = LayerState(rule_state, came.conv_inputs, _clock(before) + x.shape[1])
        return self._dense().finish(self, x, heads, came), after

    def predict(self, x: Float[Tensor, "b u d"], state: LayerState) -> Float[Tensor, "b u d"]:
        """Read the state; every query has the same clock, the number of tokens written."""
        positions = torch.full((x.shape[1],), state.num_tokens, device=x.device)
        came = self._dense().project(self, x, positions, state.conv_inputs, independent=True)
        heads = self.readout.query(self.mixer.rule, came.streams, state.rule_state)
        return self._dense().finish(self, x, heads, came)

    def _project(self, x: Tensor, state: LayerState | None) -> Projected:
        count = _clock(state)
        positions = torch.arange(count, count + x.shape[1], device=x.device)
        conv_inputs = None if state is None else state.conv_inputs
        return self._dense().project(self, x, positions, conv_inputs, independent=False)

    def _dense(self) -> "DenseParts":
        # Where no gradients are wanted little is computed: compiling again would not pay.
        return compiled() if self.compiles and torch.is_grad_enabled() else EAGER


def _rule_state(state: LayerState | None) -> RuleState | None:
    return None if state is None else state.rule_state


def _clock(state: LayerState | None) -> int:
    return 0 if state is None else state.num_tokens


class DenseParts(NamedTuple):
    """One way to compute the token-wise parts of a block.

    Attributes:
        project: From tokens to the inputs of the rule; see `project`.
        finish: From what the heads read to the tokens of the next block; see `finish`.
    """

    project: Callable[..., Projected]
    finish: Callable[..., Tensor]


def project(
    block: Block,
    x: Float[Tensor, "b t d"],
    positions: Int[Tensor, " t"],
    conv_inputs: Float[Tensor, "b w d"] | None,
    *,
    independent: bool,
) -> Projected:
    """Norm (where it comes first) and projections of the mixer; arguments as the mixer's own."""
    inputs = block.mixer_norm(x) if block.norm_first else x
    return Projected(
        inputs, *block.mixer.project(inputs, positions, conv_inputs, independent=independent)
    )


def finish(
    block: Block, x: Float[Tensor, "b t d"], heads: Float[Tensor, "b t h v"], came: Projected
) -> Float[Tensor, "b t d"]:
    """Output of the mixer, sums, norms and feed-forward layer.

    Args:
        block: The block.
        x: The tokens that entered it.
        heads: What they read.
        came: Them on their way into the rule.
    """
    mixed = block.mixer.output(heads, came.streams, came.inputs)
    x = x + mixed if block.norm_first else block.mixer_norm(x + mixed)
    if block.feed_forward is None or block.feed_forward_norm is None:
        return x
    if block.norm_first:
        return x + block.feed_forward(block.feed_forward_norm(x))
    return block.feed_forward_norm(x + block.feed_forward(x))


EAGER = DenseParts(project, finish)


@cache
def compiled() -> DenseParts:
    """Both through torch.compile, once for blocks of a kind and any number of tokens.

    The rule stays outside: its kernels are compiled already, or loops that would be unrolled.
    """
    return DenseParts(torch.compile(project, dynamic=True), torch.compile(finish, dynamic=True))
