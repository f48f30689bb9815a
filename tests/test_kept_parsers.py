"""A parser that is kept reads as a new one does, whatever it has read before."""

from pathlib import Path

import pytest
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningCLI

from tabicl_linear.config import ConfigCLI
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.noise import without_noise

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = [f"--config={CONFIGS / 'smoke.yaml'}", "--model.architecture.depth=1"]
GLA = "--model.mixer=tabicl_linear.mixers.gla.GatedLinearAttention"
READ = [
    [],
    [GLA, "--trainer.max_steps=3", "--seed_everything=4"],
    [GLA, "--model.mixer.nothing=1"],
    ["--trainer.max_steps=many"],
    [f"--config={CONFIGS / 'readout' / 'final_state.yaml'}", "--trainer.max_epochs=2"],
    [],
]


class Anew(ConfigCLI):
    """Makes its parser anew each time, as commands do."""

    setup_parser = LightningCLI.setup_parser


def outcome(reader, options):
    try:
        return reader([*SMALL, *options]).config
    except ConfigError as error:
        return str(error)


def test_a_kept_parser_reads_as_a_new_one():
    outcomes = []
    with without_noise():
        kept = ConfigCLI(SMALL).parser
        for options in READ:
            outcomes.append(outcome(ConfigCLI, options))
            assert outcomes[-1] == outcome(Anew, options), options
        assert ConfigCLI(SMALL).parser is kept is not Anew(SMALL).parser
    assert [isinstance(x, str) for x in outcomes] == [False, False, True, True, False, False]
    assert outcomes[0] == outcomes[-1] != outcomes[1]


BELOW = Namespace(b=1, get=Namespace(c=2), none=None)
TREE = Namespace(a=BELOW, items={"e": 3, "f": {"g": 4}}, none=None, x=4)
KEYS = ["a", "a.b", "a.b.c", "a.get.c", "a.get.d", "a.none.e", "items", "items.e", "items.f.g"]
KEYS += ["items.f.g.h", "none", "none.a", "none.a.b", "x.y", "nothing", "nothing.below.it"]


def found(find, key):
    try:
        leaf, parent, above = find(TREE, key)
    except KeyError as error:
        return str(error)
    return leaf, id(parent), above


@pytest.mark.parametrize("key", [*KEYS, "", ".", "a..b", "a.", "a b", 3, None, ["a"]], ids=str)
def test_a_key_that_was_split_once_is_found_where_jsonargparse_finds_it(key):
    own = Namespace._parse_key
    expected = found(own.__wrapped__, key)
    assert isinstance(expected, str) == (key not in KEYS)
    assert found(own, key) == found(own, key) == expected
