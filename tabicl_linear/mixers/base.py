"""The contract of every sequence mixer.

A mixer defines its queries, keys, values, gates and update rule. It knows nothing of labels,
strategies, readouts or priors.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.state import MatrixState, RuleState, state_shape
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


def check_mixer(mixer: SequenceMixer, dim: int) -> None:
    """Check a mixer's contract by writing and reading two tokens in plain PyTorch.

    Training alone would not reveal a wrong shape of the state, which code that reads, draws or
    learns states relies on, nor tensors that should learn and are no parameters. An output of the
    wrong shape could broadcast over all tokens.

    Args:
        mixer: A newly made mixer, not on the meta device.
        dim: Width of a token.

    Raises:
        ConfigError: `project` does not return a pair, streams, state or output do not have the
            shapes that the mixer declares, the state is not a matrix although the rule says so,
            something that is learned is no parameter, or a parameter is not learned.
    """
    name = f"{type(mixer).__module__}.{type(mixer).__qualname__}"
    rule = type(mixer.rule)
    if not isinstance(mixer.rule, UpdateRule):
        raise ConfigError(f"{name}: its rule is {mixer.rule!r}; give an object of an UpdateRule.")
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        tokens, positions = torch.zeros(1, 2, dim), torch.arange(2)
        projected: Any = mixer.project(tokens, positions, None, independent=False)
        if isinstance(projected, Streams) or not (
            isinstance(projected, tuple) and len(projected) == 2
        ):
            raise ConfigError(
                f"{name}: its project returns {type(projected).__name__}; it must return a pair, "
                "Streams and the last inputs of its convolution, None without one."
            )
        streams: Streams = projected[0]
        _check_streams(name, streams)
        state = mixer.rule.fold(streams)
        shape = state_shape(state)
        if shape != tuple(mixer.state_shape):
            raise ConfigError(
                f"{name}: its state_shape is {tuple(mixer.state_shape)}, and the state that its "
                f"{rule.__name__} keeps has {shape}; give super().__init__ the latter."
            )
        if rule.has_matrix_state and not isinstance(state, MatrixState):
            raise ConfigError(
                f"{rule.__module__}.{rule.__qualname__}: has_matrix_state=True, and its state is a "
                f"{type(state).__name__}; set has_matrix_state = False."
            )
        outputs: Any = mixer.output(mixer.rule.read(streams.q, state), streams, tokens)
    if not isinstance(outputs, Tensor) or outputs.shape != tokens.shape:
        is_tensor = isinstance(outputs, Tensor)
        given = f"has shape {tuple(outputs.shape)}" if is_tensor else f"is {outputs!r}"
        raise ConfigError(
            f"{name}: its output {given} for tokens of shape {tuple(tokens.shape)} [b t d]; "
            "it must have that of the tokens."
        )
    check_registered(name, mixer, outputs)
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        queries, _ = mixer.project(tokens, positions, projected[1], independent=True)
        answers = mixer.output(mixer.rule.read(queries.q, state), queries, tokens)
    check_trained(name, mixer, outputs.sum() + answers.sum())


def _check_streams(name: str, streams: Streams) -> None:
    """Check the streams of two tokens, of which C++ reads as much as their keys promise."""
    if not isinstance(streams, Streams) or any(x is None for x in streams[:3]):
        raise ConfigError(f"{name}: its project must return Streams with q, k and v first.")
    shape = streams.k.shape
    for field, x in streams._asdict().items():
        # A rule may take several write rates of each head (`DeltaProduct`).
        letters, common = ("b t h", 2) if field == "beta" else ("b t h e", 3)
        if x is not None and (
            x.ndim != len(letters.split())
            or x.shape[:2] != (1, 2)
            or x.shape[:common] != shape[:common]
        ):
            raise ConfigError(
                f"{name}: its {field} has shape {tuple(x.shape)} for two tokens of one task, and "
                f"its keys {tuple(shape)}; it must be [{letters}], with the heads h of the keys."
            )
    if len({x.dtype for x in streams[:3]}) > 1:
        raise ConfigError(
            f"{name}: its q, k and v are of different dtypes "
            f"({', '.join(str(x.dtype) for x in streams[:3])}); make them of one."
        )


def check_registered(name: str, module: nn.Module, outputs: Tensor) -> None:
    """Check that all that is learned is a parameter, which optimisers and checkpoints find.

    Args:
        name: How an error calls the module.
        module: What computed the outputs.
        outputs: Numbers that depend on all that it learns.

    Raises:
        ConfigError: They depend on a tensor that requires gradients and is no parameter of it.
    """
    parameters = set(module.parameters())
    for tensor in _learned(outputs):
        if tensor not in parameters:
            raise ConfigError(
                f"{name}: it computes with a tensor of shape {tuple(tensor.shape)} that "
                "requires gradients and is none of its parameters, so that it is neither trained "
                "nor saved; make it a Parameter or a layer that is an attribute by itself, or hold "
                "layers in a torch.nn.ModuleList."
            )


def check_trained(name: str, module: nn.Module, outputs: Tensor) -> None:
    """Check that the outputs depend on every parameter that requires gradients.

    In inference mode, where there are no gradients, nothing is checked.

    Raises:
        ConfigError: They do not depend on one, which would stay as it was drawn.
    """
    if torch.is_inference_mode_enabled():
        return
    learned = set(_learned(outputs))
    for parameter, tensor in module.named_parameters():
        if tensor.requires_grad and tensor not in learned:
            raise ConfigError(
                f"{name}: no gradient reaches its parameter {parameter}, so that it would stay as "
                "it was drawn; use it without detach or torch.no_grad, or, if that is meant, call "
                "requires_grad_(False) on it."
            )


def _learned(outputs: Tensor) -> Iterator[Tensor]:
    """Every tensor on which the outputs depend and that gets a gradient, once each."""
    pending: list[Any] = [outputs.grad_fn]
    visited: set[Any] = {None}
    while pending:
        if (node := pending.pop()) in visited:
            continue
        visited.add(node)
        pending += [before for before, _ in node.next_functions]
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable


def head_dim(dim: int, num_heads: int) -> int:
    """Width of a head; `ConfigError` if `num_heads` does not divide `dim`."""
    if num_heads < 1 or dim < num_heads or dim % num_heads:
        raise ConfigError(
            f"dim={dim} cannot be cut into num_heads={num_heads} equal heads; choose a dim that is "
            "a multiple of num_heads."
        )
    return dim // num_heads
