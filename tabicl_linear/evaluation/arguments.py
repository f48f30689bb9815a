"""Reads arguments of a classifier from a command line: NAME=VALUE."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tabicl_linear.errors import ConfigError

PYTHON = {"True": True, "False": False, "None": None}
"""Values as Python writes them, and `identified` too."""


def read_arguments(model: str, texts: Sequence[str], names: Collection[str]) -> dict[str, Any]:
    """Values by name; a value is read as JSON (true, 4, 0.9), as True, False or None, else as text.

    Args:
        model: Name of the model, for the message.
        texts: Arguments of the form "NAME=VALUE".
        names: Arguments that the classifier has.

    Raises:
        ConfigError: A text has another form, or the classifier has no such argument.
    """
    values = dict[str, Any]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            raise ConfigError(
                f"--arguments {model} {text}: give NAME=VALUE, with one of "
                f"{', '.join(sorted(names))}."
            )
        try:
            values[name] = json.loads(value)
        except json.JSONDecodeError:
            values[name] = PYTHON.get(value, value)
    return values


def identified(identity: str, arguments: Mapping[str, Any]) -> str:
    """The identity of a candidate with arguments, such as "IDENTITY n_estimators=2 trees=False"."""
    return " ".join([identity, *(f"{name}={arguments[name]!r}" for name in sorted(arguments))])
