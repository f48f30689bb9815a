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


NAMESPACES = [
    Namespace(),
    Namespace(a=None, keys=1),
    Namespace(a=Namespace(b=Namespace(c=3), items=Namespace(b={"c": 1}))),
    Namespace(a={"b": Namespace(c=4)}, b=[Namespace(c=5)]),
]
KEYS = ["a", "a.b", "a.b.c", "a.items.b.c", "b.c", "keys", "a.keys.b", "a..b", "", ".a", "a b", 0]


def found(namespace, key):
    """What stands below a key, or why nothing does, and the namespace after it is set there."""
    results = []
    for ask in (Namespace.__getitem__, Namespace.get, Namespace.__contains__, Namespace.pop):
        try:
            results.append(ask(namespace.clone(), key))
        except Exception as error:
            results.append((type(error), str(error)))
    changed = namespace.clone()
    try:
        changed[key] = 7
    except Exception as error:
        results.append((type(error), str(error)))
    return *results, changed


@pytest.mark.parametrize("namespace", NAMESPACES, ids=str)
def test_keys_are_found_as_they_are_without(namespace, monkeypatch):
    kept = [found(namespace, key) for key in KEYS * 2]
    monkeypatch.setattr(Namespace, "_parse_key", Namespace._parse_key.__wrapped__)
    assert kept == [found(namespace, key) for key in KEYS * 2]
