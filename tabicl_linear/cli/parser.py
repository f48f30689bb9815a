"""Command lines of the small verbs: what is wrong with one is one line."""

import argparse
from typing import NoReturn

from tabicl_linear.errors import ConfigError


class OneLineArgumentParser(argparse.ArgumentParser):
    """Raises `ConfigError` where argparse prints its usage and exits."""

    def error(self, message: str) -> NoReturn:
        """Raise the message, and where help is."""
        raise ConfigError(f"{message}; `{self.prog} --help` lists the options.")
