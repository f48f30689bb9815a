"""Checks of mixers, readouts and strategies on three tokens, when a task is made.

`training.mixer_checks` checks the shapes of a mixer before. Training would not reveal most of
these faults: a query that sees other queries, a token that reads later ones, or a label that is
written before it is predicted, give good scores that mean nothing.
"""

from functools import partial
from typing import Any

import torch
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.readouts import Readout
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.training.parameter_checks import check_registered, check_trained
from tabicl_linear.types import Tensor


def check_independence(mixer: SequenceMixer, dim: int) -> None:
    """Check that a mixer sees no more of other tokens than its convolution may.

    Args:
        mixer: The mixer of a layer, not on the meta device.
        dim: Width of a token.

    Raises:
        ConfigError: The streams of context tokens depend on how they are cut into chunks, or on
            later tokens; or queries depend on each other.
    """
    name, tokens = _name(mixer), _noise(0, 3, dim)
    one, written = tokens.split(1, dim=1), torch.tensor([3])
    was_training = mixer.training
    mixer.eval()  # dropout would differ
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        context, last = mixer.project(tokens, torch.arange(3), None, independent=False)
        parts, inputs = [], None
        for i, x in enumerate(one):
            part, inputs = mixer.project(x, torch.tensor([i]), inputs, independent=False)
            parts.append(part)
        _check_streams_equal(
            context,
            parts,
            f"{name}: its project of three context tokens is not that of one after the other; a "
            "token may depend on earlier ones only by the conv_inputs that project returns and is "
            "given again, and not on later ones.",
        )
        queries, _ = mixer.project(tokens, written.expand(3), last, independent=True)
        parts = [mixer.project(x, written, last, independent=True)[0] for x in one]
        _check_streams_equal(
            queries,
            parts,
            f"{name}: its project of three queries (independent=True) is not that of each alone; a "
            "query comes directly after conv_inputs and must not depend on other queries.",
        )
        reads = mixer.rule.read(queries.q, mixer.rule.fold(context))
        alone = zip(reads.split(1, dim=1), parts, one, strict=True)
        _check_equal(
            mixer.output(reads, queries, tokens),
            torch.cat([mixer.output(*token) for token in alone], dim=1),
            f"{name}: its output for three tokens is not that of each alone; it must not depend on "
            "other tokens.",
        )
    mixer.train(was_training)


def check_readout(readout: Readout, mixer: SequenceMixer, dim: int) -> None:
    """Check what a readout returns for three tokens, and that each reads only what it may.

    Args:
        readout: A readout that serves the mixer's rule.
        mixer: The mixer of its layer, not on the meta device.
        dim: Width of a token.

    Raises:
        ConfigError: Reads or state are not what they must be, queries depend on each other, or a
            readout that calls itself causal is not.
    """
    name, rule = _name(readout), mixer.rule
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        streams, _ = mixer.project(_noise(0, 3, dim), torch.arange(3), None, independent=False)
        one = [
            map_tensors(partial(torch.narrow, dim=1, start=i, length=1), streams) for i in (0, 1, 2)
        ]
        final = rule.fold(streams)
        reads = rule.read(streams.q, final)
        returned: Any = readout.context(rule, streams, None)
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise ConfigError(
                f"{name}: its context returns {type(returned).__name__}; it must return a pair, "
                "the reads and the final state."
            )
        _check_like(f"{name}: its context", returned[0], reads)
        if not isinstance(returned[1], type(final)):
            raise ConfigError(
                f"{name}: its context returns {type(returned[1]).__name__} as the final state; it "
                f"must return the {type(final).__name__} of {type(rule).__name__}."
            )
        together = readout.query(rule, streams, final)
        _check_like(f"{name}: its query", together, reads)
        _check_equal(
            together,
            torch.cat([readout.query(rule, x, final) for x in one], dim=1),
            f"{name}: its query reads three tokens otherwise than one after the other; every query "
            "must be read by itself, and neither state nor streams may be changed in place.",
        )
        if readout.is_causal:
            parts, state = [], None
            for x in one:
                part, state = readout.context(rule, x, state)
                parts.append(part)
            _check_equal(
                returned[0],
                torch.cat(parts, dim=1),
                f"{name}: its context reads three tokens otherwise than one after the other, each "
                "after the state before; set is_causal = False if tokens read later ones, else "
                "continue from the given state.",
            )
    check_registered(name, nn.ModuleList([readout, mixer]), returned[0] + together)
    check_trained(name, readout, returned[0] + together)


def check_strategy(strategy: Strategy, dim: int) -> None:
    """Check what a strategy makes of three rows, and that no label is told before it is predicted.

    Args:
        strategy: A strategy, not on the meta device.
        dim: Width of a token.

    Raises:
        ConfigError: Tokens have other shapes than they must, queries depend on each other, or the
            token that predicts a row depends on its label.
    """
    name = _name(strategy)
    rows, labels, placeholder = _noise(0, 3, dim), _noise(1, 3, dim), _noise(2, 1, dim)
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        queries = strategy.query_tokens(rows, placeholder)
        _check_like(f"{name}: its query_tokens", queries, rows)
        context = strategy.context_tokens(rows, labels)
        _check_like(f"{name}: its context_tokens", context, rows, any_number=True)
        _check_equal(
            queries,
            torch.cat([strategy.query_tokens(x, placeholder) for x in rows.split(1, 1)], dim=1),
            f"{name}: its query_tokens of three rows are not those of one row after the other; "
            "they must be in the order of the rows and independent of other rows, and no method "
            "may change the rows in place.",
        )
        outputs = queries
        if strategy.target == "multi":
            written = strategy.multi_target_tokens(rows, labels, placeholder, num_context=2)
            _check_like(f"{name}: its multi_target_tokens", written, rows, any_number=True)
            outputs = strategy.multi_target_outputs(written, num_context=2)
            _check_like(f"{name}: its multi_target_outputs of one query", outputs, rows[:, 2:])
            _check_labels_are_hidden(strategy, rows, labels, placeholder)
    check_registered(name, strategy, context.sum() + queries.sum() + outputs.sum())


def _check_labels_are_hidden(
    strategy: Strategy, rows: Tensor, labels: Tensor, placeholder: Tensor
) -> None:
    """Check that two query rows are predicted before their labels are written, in their order.

    The model is a sum over all tokens so far: like any causal one it knows a label from the token
    that holds it on, and not only there.
    """
    name = _name(strategy)

    def predictions(labels: Tensor) -> Tensor:
        written = strategy.multi_target_tokens(rows, labels, placeholder, num_context=1)
        return strategy.multi_target_outputs(written.cumsum(1), num_context=1)

    outputs = predictions(labels)
    _check_like(f"{name}: its multi_target_outputs of two queries", outputs, rows[:, 1:])
    for row in (1, 2):
        other = torch.cat([labels[:, :row], -labels[:, row:]], dim=1)
        _check_equal(
            outputs[:, :row],
            predictions(other)[:, :row],
            f"{name}: the token by which multi_target_outputs predicts a row comes with or after "
            "the row's own label, which a causal model has read by then; predict it from a token "
            "before its label is written.",
        )


def _noise(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(1, *shape, generator=generator, device="cpu")
    return noise.to(torch.get_default_device())


def _name(part: nn.Module) -> str:
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _check_like(what: str, value: Any, like: Tensor, *, any_number: bool = False) -> None:
    """Check that a value is finite and like a tensor, perhaps but for the number of tokens."""
    wanted, given = tuple(like.shape), type(value).__name__
    if isinstance(value, Tensor):
        if any_number and value.ndim == like.ndim:
            wanted = (1, max(1, value.shape[1]), *like.shape[2:])
        is_finite = bool(value.isfinite().all())
        if value.shape == wanted and value.dtype == like.dtype and is_finite:
            return
        given = f"{tuple(value.shape)} in {value.dtype}{'' if is_finite else ', not all finite'}"
    raise ConfigError(
        f"{what} returns {given}; it must return finite numbers of shape {wanted} in {like.dtype}."
    )


def _check_streams_equal(together: Streams, parts: list[Streams], message: str) -> None:
    """Raise the message if streams of tokens differ from those of each token, by `_check_equal`."""
    for stream, *ones in zip(together, *parts, strict=True):
        if stream is not None:
            _check_equal(stream, torch.cat(ones, dim=1), message)


def _check_equal(first: Tensor, second: Tensor, message: str) -> None:
    """Raise the message if two results differ by more than rounding."""
    if first.shape != second.shape or (first - second).norm() > 1e-3 * first.norm():
        raise ConfigError(message)
