"""Parsers of the command line are made once in a process: they took a tenth of all tests' time.

A command makes one parser and reads with it once. Tests read thousands of configs in one process,
and each parser would be made of the same signatures and would look for every key in the same
hundreds of options. Reading does not change a parser (`tests/test_kept_parsers.py`).
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from jsonargparse import ArgumentParser

LOOK_UP = "find_action_and_subcommand"
"""jsonargparse's function that goes through all options for one key."""


def install(reader: Any) -> None:
    """From now on a class that reads configs has one parser, and one for each verb."""
    made: dict[Any, dict[str, Any]] = {}
    found: dict[int, dict[Any, Any]] = {}
    make = reader.setup_parser

    def setup_parser(self: Any, add_subcommands: bool, *options: Any) -> None:
        of = type(self), *(self.subcommands() if add_subcommands else ())
        if of not in made:
            before = set(vars(self))
            make(self, add_subcommands, *options)
            made[of] = {name: value for name, value in vars(self).items() if name not in before}
            of_verbs = made[of].get("_subcommand_parsers", {}).values()
            found.update({id(parser): {} for parser in (self.parser, *of_verbs)})
        vars(self).update(made[of])

    reader.setup_parser = setup_parser
    for name, module in list(sys.modules.items()):
        if name.startswith("jsonargparse.") and LOOK_UP in vars(module):
            setattr(module, LOOK_UP, remembered(vars(module)[LOOK_UP], found))


def remembered(look_up: Callable[..., Any], found: dict[int, dict[Any, Any]]) -> Callable[..., Any]:
    """The same function; what it has found in a parser that is kept is not looked for again."""

    @wraps(look_up)
    def find(parser: ArgumentParser, dest: str, exclude: Any = None) -> Any:
        if (known := found.get(id(parser))) is None:
            return look_up(parser, dest, exclude=exclude)
        if (dest, exclude) not in known:
            known[dest, exclude] = look_up(parser, dest, exclude=exclude)
        return known[dest, exclude]

    return find
