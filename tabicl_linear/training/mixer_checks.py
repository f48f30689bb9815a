"""The check of a mixer's contract on two tokens, when a task is made."""

from typing import Any

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.state import MatrixState, state_shape
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.training.parameter_checks import check_registered, check_trained
from tabicl_linear.types import Tensor


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
