"""Argument parser, with one-line errors, of all verbs that do not train."""

import argparse
import difflib
import math
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tabicl_linear.errors import ConfigError


class _Store(argparse.Action):
    """Stores values; an option that takes several adds those of its later occurrences."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = vars(namespace)[self.dest]
        if self.nargs in ("+", "*") and before is not self.default:
            values = [*before, *values]
        setattr(namespace, self.dest, values)


class OneLineArgumentParser(argparse.ArgumentParser):
    """Raises `ConfigError` where argparse would print its usage and exit.

    Abbreviated options are errors: a new option could change what an abbreviation means.
    `--drop a --drop b` is `--drop a b`; argparse would forget the first.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.register("action", None, _Store)

    def error(self, message: str) -> NoReturn:
        """Raise the message with a pointer to the help."""
        several = [
            x.option_strings[-1] for x in self._actions if x.option_strings and x.nargs == "+"
        ]
        if several and "arguments are required" in message and self._get_positional_actions():
            message += (
                f" (options such as {several[0]} take all words that follow; files go before)"
            )
        raise ConfigError(f"{message}; `{self.prog} --help` lists the options.")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; an unknown option is reported before a missing one, unlike in argparse."""
        args = sys.argv[1:] if args is None else args
        options = self._option_string_actions
        for word in [] if self._subparsers else args:
            name = word.partition("=")[0]
            if word == "--":
                break
            if word.startswith("--") and " " not in word and name not in options:
                close = difflib.get_close_matches(name, options, n=1)
                hint = f" (did you mean {close[0]}?)" if close else ""
                self.error(f"unknown option {name}{hint}")
        return super().parse_known_args(args, namespace)


def count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number of at least 1")
    return int(text)


def positive(text: str) -> float:
    """A number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text}: give a number above 0")
    return number
