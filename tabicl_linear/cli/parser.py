"""Argument parser of the small verbs, with one-line errors."""

import argparse
from typing import NoReturn

from tabicl_linear.errors import ConfigError


class OneLineArgumentParser(argparse.ArgumentParser):
    """Raises `ConfigError` where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """Raise the message with a pointer to the help."""
        raise ConfigError(f"{message}; `{self.prog} --help` lists the options.")


def count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number of at least 1")
    return int(text)
