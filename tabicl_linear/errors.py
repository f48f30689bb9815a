"""Errors for users. All are `ValueError`s, and name what is wrong, the value and the remedy."""

from collections.abc import Mapping
from os import sep
from pathlib import Path
from sysconfig import get_paths
from traceback import walk_tb
from typing import Any

PACKAGE = f"{Path(__file__).parent}{sep}"
LIBRARIES = tuple(
    f"{get_paths()[name]}{sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
"""Folders of code that is not a user's."""


def one_line(message: object) -> str:
    """A message of another library, or the text of a value, without line breaks."""
    return " ".join(str(message).split())


def caller(error: BaseException) -> str | None:
    """File and line of a user's own code that called what raised the error; None without any.

    Commands show errors as one line. Raised by a callback, prior or mixer of the user's own, that
    line alone would not say where to look.
    """
    calls = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    if not calls or not calls[-1][0].startswith(PACKAGE):
        return None  # raised by their code itself, which knows what it says
    own = [
        f"{file}, line {line}"
        for file, line in calls
        if not file.startswith((PACKAGE, *LIBRARIES, "<"))
    ]
    return own[-1] if own else None


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number and what it counts, such as "1 row" or "2,000 rows".

    Args:
        count: The number.
        noun: What one is called.
        plural: What several are called, if not the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ, for a message; a key that is missing counts as None."""
    return [key for key in {**one, **other} if one.get(key) != other.get(key)]


class ConfigError(ValueError):
    """A configuration that cannot be built, or parts that do not fit together."""


class UnsupportedReadout(ConfigError):
    """A readout that the mixer's update rule does not support."""


class CheckpointError(ValueError):
    """A checkpoint or export that is corrupt, foreign, or does not fit the options."""


class DataError(ValueError):
    """A table or synthetic task that cannot be used as requested."""


class NotInModel(DataError):
    """A model was asked for something that its kind does not have, such as a matrix state."""


class DamagedFile(DataError):
    """A file of results has changed since it was written.

    Args:
        path: The file.
        reason: What is wrong with it, such as "its digest is another".
        remedy: What to do, such as "delete it".
    """

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path} is damaged ({reason}): {remedy}.")
        self.path, self.reason = path, reason
