"""A mixer that breaks the contract is refused when a task is made."""

import pytest
import torch
from contract.fixed_decay import FixedDecay
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.state import GramState, map_tensors
from tabicl_linear.training.mixer_checks import check_mixer


def test_a_state_of_another_shape_than_said_is_refused():
    class Wider(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            self.qkv = nn.Linear(dim, 6 * dim)

    check_mixer(FixedDecay(8, 2), 8)
    with pytest.raises(ConfigError, match=r"Wider: .*\(2, 4, 4\).*AdditiveRule.*\(2, 8, 8\); give"):
        check_mixer(Wider(8, 2), 8)


def test_streams_without_what_a_convolution_keeps_are_refused():
    """They are a tuple, too, of which the block would take two."""

    class Alone(FixedDecay):
        def project(self, *args, **kwargs):
            return super().project(*args, **kwargs)[0]

    with pytest.raises(ConfigError, match=r"Alone: its project returns Streams; .* a pair"):
        check_mixer(Alone(8, 2), 8)


def test_a_state_that_is_no_matrix_where_the_rule_says_so_is_refused():
    """Readouts and initial states would take it for one, and fail in the first step."""

    class Momentum(AdditiveRule):
        def fold(self, x, state=None):
            S = super().fold(x).S
            return GramState(S, S, 2)

    class Mixer(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            self.rule = Momentum()

    with pytest.raises(ConfigError, match=r"Momentum: .*a GramState; set has_matrix_state = False"):
        check_mixer(Mixer(8, 2), 8)


def test_an_output_of_fewer_tokens_is_refused():
    class LastToken(FixedDecay):
        def output(self, heads, streams, x):
            return super().output(heads, streams, x)[:, -1:]

    with pytest.raises(
        ConfigError, match=r"LastToken: .*\(1, 1, 8\) for tokens of shape \(1, 2, 8\)"
    ):
        check_mixer(LastToken(8, 2), 8)


def test_an_output_that_nobody_returns_is_refused():
    class Silent(FixedDecay):
        def output(self, heads, streams, x):
            super().output(heads, streams, x)

    with pytest.raises(ConfigError, match=r"Silent: its output is None for tokens"):
        check_mixer(Silent(8, 2), 8)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            lambda x: x._replace(log_decay=x.log_decay[0, 0]),
            r"log_decay has shape \(2, 1\) .*b t h e",
        ),
        (lambda x: x._replace(log_decay=x.log_decay[:, :1]), r"log_decay has shape \(1, 1, 2, 1\)"),
        (lambda x: x._replace(beta=x.v), r"beta has shape \(1, 2, 2, 4\) .*\[b t h\]"),
        (lambda x: x._replace(q=x.q.flatten(2)), r"q has shape \(1, 2, 8\)"),
        (lambda x: x._replace(v=x.v[:, :, :1]), r"v has shape \(1, 2, 1, 4\)"),
        (lambda x: x._replace(k=None), "Streams with q, k and v"),
        (lambda x: x._replace(q=x.q.double()), r"different dtypes \(torch.float64, torch.float32"),
    ],
)
def test_streams_of_another_shape_or_dtype_are_refused(changed, words):
    """Kernels in C++ would read beyond them."""

    class Loose(FixedDecay):
        def project(self, *args, **kwargs):
            streams, kept = super().project(*args, **kwargs)
            return changed(streams), kept

    with pytest.raises(ConfigError, match=rf"Loose: .*{words}"):
        check_mixer(Loose(8, 2), 8)


def test_a_class_of_rules_in_place_of_a_rule_is_refused():
    class Mixer(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            self.rule = AdditiveRule

    with pytest.raises(ConfigError, match="give an object of an UpdateRule"):
        check_mixer(Mixer(8, 2), 8)


@pytest.mark.parametrize("hold", [list, nn.ModuleList])
def test_layers_that_nobody_finds_are_refused(hold):
    """They would be trained by no optimiser and be in no checkpoint, without a word."""

    class Hidden(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            self.gates = hold([nn.Linear(dim, dim)])

        def output(self, heads, streams, x):
            return super().output(heads, streams, x) * torch.sigmoid(self.gates[0](x))

    if hold is nn.ModuleList:
        check_mixer(Hidden(8, 2), 8)
        return
    with pytest.raises(ConfigError, match=r"Hidden: .*\(8,?( 8)?\) .*torch.nn.ModuleList"):
        check_mixer(Hidden(8, 2), 8)


@pytest.mark.parametrize("is_meant", [False, True])
def test_parameters_that_no_gradient_reaches_are_refused(is_meant):
    """They would stay as they were drawn, without a word."""

    class Frozen(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            self.qkv.requires_grad_(not is_meant)

        def project(self, *args, **kwargs):
            streams, kept = super().project(*args, **kwargs)
            return map_tensors(torch.Tensor.detach, streams), kept

    if is_meant:
        check_mixer(Frozen(8, 2), 8)
        return
    with torch.inference_mode():  # as `build_data` may be called, which makes a task, too
        check_mixer(FixedDecay(8, 2), 8)
    with pytest.raises(ConfigError, match=r"Frozen: .* parameter qkv.weight, .*requires_grad_"):
        check_mixer(Frozen(8, 2), 8)


def test_parameters_that_only_queries_use_are_none_without_gradients():
    class Asking(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            self.scale = nn.Parameter(torch.ones(()))

        def project(self, *args, independent, **kwargs):
            streams, kept = super().project(*args, independent=independent, **kwargs)
            return streams._replace(q=streams.q * self.scale) if independent else streams, kept

    check_mixer(Asking(8, 2), 8)
