"""Parsers of verbs are made once in a process, too: parsers took a tenth of all tests' time.

A command makes one parser and reads with it once. Tests read thousands of configs in one process,
and each parser would be made of the same signatures and would look for every key in the same
hundreds of options. Reading does not change a parser (`tests/test_kept_parsers.py`), so that
`ConfigCLI` itself makes the one without verbs once.
"""

import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from jsonargparse import ArgumentParser, Namespace

Lookups = dict[int, dict[Any, Any]]
"""What a key stands for in each kept parser, by the number of the parser."""
LOOK_UP = "find_action_and_subcommand"
"""jsonargparse's function that goes through all options for one key."""


def install(reader: Any) -> None:
    """From now on a class that reads configs has one parser for each verb."""
    attributes: dict[Any, dict[str, Any]] = {}
    lookups: Lookups = {}
    make = reader.setup_parser

    def setup_parser(self: Any, add_subcommands: bool, *options: Any) -> None:
        if not add_subcommands:
            make(self, add_subcommands, *options)
            lookups.setdefault(id(self.parser), {})
            return
        kind = type(self), *self.subcommands()
        if kind not in attributes:
            before = set(vars(self))
            make(self, add_subcommands, *options)
            attributes[kind] = {name: vars(self)[name] for name in vars(self).keys() - before}
            of_verbs = attributes[kind]["_subcommand_parsers"].values()
            lookups.update({id(parser): {} for parser in (self.parser, *of_verbs)})
        vars(self).update(attributes[kind])

    reader.setup_parser = setup_parser
    Namespace._parse_key = split_once(Namespace._parse_key)
    for name, module in list(sys.modules.items()):
        if name.startswith("jsonargparse.") and LOOK_UP in vars(module):
            setattr(module, LOOK_UP, remembered(vars(module)[LOOK_UP], lookups))


def remembered(look_up: Callable[..., Any], lookups: Lookups) -> Callable[..., Any]:
    """The same function; what it says of a key of a kept parser is not looked up again."""

    @wraps(look_up)
    def find(parser: ArgumentParser, dest: str, exclude: Any = None) -> Any:
        if (actions := lookups.get(id(parser))) is None:
            return look_up(parser, dest, exclude=exclude)
        if (dest, exclude) not in actions:
            actions[dest, exclude] = look_up(parser, dest, exclude=exclude)
        return actions[dest, exclude]

    return find


def split_once(find: Callable[..., Any]) -> Callable[..., Any]:
    """The same method of a namespace; what does not depend on the namespace is done once for a key.

    It is called ten thousand times for a config: a third of the time of reading it.
    """

    @cache
    def split(key: str) -> tuple[list[str], str, str]:
        leaf, _, above = find(Namespace(), key)  # raises an error for what is no key
        return above.split(".") if above else [], leaf, above

    @wraps(find)
    def place(self: Namespace, key: str) -> tuple[str, Any, str]:
        if type(key) is not str:
            return find(self, key)
        names, leaf, above = split(key)
        parent: Any = self
        for name in names:
            if type(parent) is not Namespace:
                break
            parent = vars(parent).get(name)
        if parent is None or type(parent) is Namespace:
            return leaf, parent, above
        return find(self, key)  # dictionaries, and values that have nothing below them

    return place
