"""Messages of commands on standard error, and checks that their results can be written."""

import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tabicl_linear.errors import ConfigError
from tabicl_linear.files import try_writing


def check_folder(folder: Path, *, replaced: bool = False) -> None:
    """Raise `ConfigError` if no files can be written to a folder, which need not exist.

    If the folder is `replaced` as a whole, files are first written next to it, so its parent is
    checked.
    """
    place = folder.resolve().parent if replaced else folder
    there = next(path for path in (place, *place.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"--output {folder}: {there} is not a folder; name another folder.")
    try:
        try_writing(there / "output")
    except OSError as error:
        raise ConfigError(
            f"--output {folder}: no file can be written in {there} ({error.strerror or error}); "
            "name another folder."
        ) from error


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn any `OSError` within the block into a `ConfigError` about `--output FOLDER`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"--output {folder} cannot be written: {error.strerror or error}; name a folder with "
            "room and the right to write."
        ) from error


_EXAMPLES = re.compile(r" \([^()]* here, [^()]* in training\)")
"""What a warning shows of the rows at hand; with that of another piece it is the same warning."""


@contextmanager
def warnings_as_lines(
    verb: str, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Show each warning once, as one line on standard error without source code.

    `options` of the command are named after warnings that name the arguments of Python for them.
    """
    shown = set[str]()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        # Python's own memory of what it has shown is reset whenever any code sets warning filters,
        # which happens between the pieces of a table.
        text = str(message)
        if (without_examples := _EXAMPLES.sub("", text)) not in shown:
            shown.add(without_examples)
            names = [
                f" ({name} is {option} here.)" for name, option in options.items() if name in text
            ]
            say(f"warning: {text}{''.join(names)}", verb)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def say(line: str, verb: str = "") -> None:
    """Print a line on standard error, preceded by the command's name if `verb` is not empty."""
    print(f"tabicl-linear {verb}: {line}" if verb else line, file=sys.stderr, flush=True)
