"""A mixer that lacks a part of the contract is refused when it is built."""

import pytest
from contract.fixed_decay import FixedDecay

from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.base import SequenceMixer


@pytest.mark.parametrize("name", ["rule", "num_heads", "state_shape"])
def test_a_missing_attribute_is_named_with_the_remedy(name):
    class Forgetful(FixedDecay):
        def __init__(self, dim, num_heads):
            super().__init__(dim, num_heads)
            delattr(self, name)

    with pytest.raises(ConfigError) as caught:
        Forgetful(8, 2)
    message = str(caught.value)
    assert message.startswith(f"Forgetful does not set {name}: ")
    assert "constructor" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["project", "output"])
def test_a_missing_method_is_named_with_the_remedy(name):
    methods = {"project": FixedDecay.project, "output": FixedDecay.output}
    del methods[name]
    with pytest.raises(ConfigError, match=rf"^Short does not define {name}: .*SequenceMixer\.$"):
        type(SequenceMixer)("Short", (SequenceMixer,), methods)(8, 2)


def test_a_whole_mixer_is_built():
    assert FixedDecay(8, 2).state_shape == (2, 4, 4)
