"""A mixer that lacks a part of the contract is refused when it is built."""

import pytest
from contract.fixed_decay import FixedDecay
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.state import GramState
from tabicl_linear.mixers.base import SequenceMixer, check_shapes


def test_what_the_constructor_must_give_is_named():
    class Forgetful(FixedDecay):
        def __init__(self, dim, num_heads):
            SequenceMixer.__init__(self)

    with pytest.raises(TypeError, match="'rule'"):
        Forgetful(8, 2)


@pytest.mark.parametrize("name", ["project", "output"])
def test_a_missing_method_is_named(name):
    methods = {"project": FixedDecay.project, "output": FixedDecay.output}
    del methods[name]
    with pytest.raises(TypeError, match=rf"abstract class Short .*{name}"):
        type(SequenceMixer)("Short", (SequenceMixer,), methods)(8, 2)


def test_a_whole_mixer_is_built():
    mixer = FixedDecay(8, 2)
    assert (mixer.num_heads, mixer.state_shape) == (2, (2, 4, 4))


def test_a_state_of_another_shape_than_said_is_refused():
    class Wider(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            self.qkv = nn.Linear(dim, 6 * dim)

    check_shapes(FixedDecay(8, 2), 8)
    with pytest.raises(ConfigError, match=r"Wider: .*\(2, 4, 4\).*AdditiveRule.*\(2, 8, 8\); give"):
        check_shapes(Wider(8, 2), 8)


def test_streams_without_what_a_convolution_keeps_are_refused():
    """They are a tuple, too, of which the block would take two."""

    class Alone(FixedDecay):
        def project(self, *args, **kwargs):
            return super().project(*args, **kwargs)[0]

    with pytest.raises(ConfigError, match=r"Alone: its project returns Streams; .* a pair"):
        check_shapes(Alone(8, 2), 8)


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
        check_shapes(Mixer(8, 2), 8)


def test_an_output_of_fewer_tokens_is_refused():
    class LastToken(FixedDecay):
        def output(self, heads, streams, x):
            return super().output(heads, streams, x)[:, -1:]

    with pytest.raises(
        ConfigError, match=r"LastToken: .*\(1, 1, 8\) for tokens of shape \(1, 2, 8\)"
    ):
        check_shapes(LastToken(8, 2), 8)
