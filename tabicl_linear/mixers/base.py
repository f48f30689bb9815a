"""The contract of every sequence mixer.

A mixer defines its queries, keys, values, gates and update rule. It knows nothing of labels,
strategies, readouts or priors.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from torch import nn
from torch.utils.hooks import RemovableHandle

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.state import RuleState
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Int, Tensor


class LayerState(NamedTuple):
    """The state of one layer after its context.

    Attributes:
        rule_state: State of the update rule.
        conv_inputs: The last inputs of the mixer that its short convolution needs for the next
            tokens; None without a convolution.
        num_tokens: Number of tokens written so far, the clock of the write-rate decay.
    """

    rule_state: RuleState
    conv_inputs: Float[Tensor, "b w d"] | None
    num_tokens: int


StreamsHook = Callable[[Streams, Int[Tensor, " t"], bool], None]
"""Called with the streams of some tokens, the number of tokens written before each, and whether
these tokens are written (or only read)."""


class SequenceMixer(nn.Module, ABC):
    """Projections and gates around an update rule.

    A subclass is constructed from (dim, num_heads) and options that have defaults.

    Args:
        rule: The update rule.
        state_shape: Heads, value dimension and key dimension of the state. For a state that is not
            one of `kernels.state`, the shape of its first tensor without the batch, heads first.

    Attributes:
        num_heads: Heads of the mixer; may differ from the architecture's.
    """

    def __init__(self, rule: UpdateRule, state_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.rule = rule
        self.num_heads = state_shape[0]
        self.state_shape = state_shape
        self._streams_hooks: dict[int, StreamsHook] = OrderedDict()

    def register_streams_hook(self, hook: StreamsHook) -> RemovableHandle:
        """Call a hook with the streams of every `project`, until its handle is removed.

        The block makes the calls, so mixers need no code for it. Hooks only observe: what they
        return is ignored, and they must not change the streams. `analysis.record_streams` is built
        on this.

        Args:
            hook: Called with the streams, the positions and whether the tokens are written. With
                final-state readouts, long contexts come twice: first written, then only read. In a
                bidirectional block, both directions have positions from 0.
        """
        handle = RemovableHandle(self._streams_hooks)
        self._streams_hooks[handle.id] = hook
        return handle

    def show_streams(
        self, streams: Streams, positions: Int[Tensor, " t"], *, written: bool
    ) -> None:
        """Call the hooks; the block does this right after `project`."""
        for hook in self._streams_hooks.values():
            hook(streams, positions, written)

    @abstractmethod
    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """Inputs of the rule, and inputs of the convolution for the tokens that follow.

        Args:
            x: Tokens, normalised by the block.
            positions: Number of tokens written before each token.
            conv_inputs: Inputs before the first token; None at the start of a sequence.
            independent: Whether the tokens are queries, each of which comes directly after
                `conv_inputs` and does not see the others.

        Returns:
            The streams of these tokens, which autocast may have lowered to 16 bits; and the last
            inputs of the convolution, None for a mixer without one.
        """

    @abstractmethod
    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """The output for each token: the heads' reads, normalised, gated and projected.

        Args:
            heads: What the tokens read, in at least float32, whatever the dtype of the model.
            streams: The streams that `project` returned for these tokens.
            x: The tokens that were passed to `project`.
        """

    def initialise_for_(self, depth: int) -> None:
        """Draw weights whose scale depends on the model's depth; most mixers have no such weights.

        Args:
            depth: Number of layers of the model.
        """


MixerFactory = Callable[[int, int], SequenceMixer]
"""Makes the mixer of one layer from (dim, num_heads)."""


def head_dim(dim: int, num_heads: int) -> int:
    """Width of a head; `ConfigError` if `num_heads` does not divide `dim`."""
    if num_heads < 1 or dim < num_heads or dim % num_heads:
        raise ConfigError(
            f"dim={dim} cannot be cut into num_heads={num_heads} equal heads; choose a dim that is "
            "a multiple of num_heads."
        )
    return dim // num_heads
