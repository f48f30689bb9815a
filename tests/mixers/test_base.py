"""A mixer that lacks a part of the contract is refused when it is built."""

import pytest
from contract.fixed_decay import FixedDecay

from tabicl_linear.mixers.base import SequenceMixer


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
