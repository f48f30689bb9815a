"""What users are told: about their table, and how far the work is."""

import inspect
import reprlib
import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

from tabicl_linear.errors import DataError

MOST_SHOWN = 10
"""Most columns that a message names."""
MOST_LETTERS = 60
"""Most letters of a cell, or of a name, in a message."""

_PACKAGE = __name__.partition(".")[0]
_IS_SILENT = ContextVar("_IS_SILENT", default=False)


def warn_user(text: str) -> None:
    """Warn at the line that called this package, however deep inside it the reason was found."""
    if _IS_SILENT.get():
        return
    # skip_file_prefixes of warnings.warn would do this, from Python 3.12 on.
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level + 1)


@contextmanager
def silenced() -> Iterator[None]:
    """Leave out warnings, for a second fit of rows about which a first one has warned.

    Python's filters of warnings would not do: all threads share them.
    """
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)


def brief(value: object) -> str:
    """A cell or a name as Python writes it, without the middle of a long one.

    Where a quote was left open, one may be all of a file.
    """
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = MOST_LETTERS
    return shortened.repr(value)


def shown(names: Sequence[Any]) -> str:
    """The first names, without quotes where they can be read so; see `listed`."""

    def is_plain(text: str) -> bool:
        return text == text.strip() and text.isprintable() and len(text) <= MOST_LETTERS

    return listed(text if is_plain(text) else brief(text) for text in map(str, names))


def listed(texts: Iterable[str]) -> str:
    """The first texts, and how many more there are."""
    texts = list(texts)
    first = ", ".join(texts[:MOST_SHOWN])
    return first if len(texts) <= MOST_SHOWN else f"{first} and {len(texts) - MOST_SHOWN} more"


def check_columns(
    columns: Sequence[Hashable],
    expected: Sequence[Hashable],
    *,
    whose: str,
    these: str = "The columns",
    hint: str = "",
) -> None:
    """Raise `DataError`, which lists how, if columns are not those expected, in any order.

    Messages say `whose` the expected ones are and which are `these`, and what else can be done.
    """
    missing = [brief(name) for name in expected if name not in set(columns)]
    extra = [brief(name) for name in columns if name not in set(expected)]
    parts = [f"missing {listed(missing)}"] if missing else []
    parts += [f"unknown {listed(extra)}"] if extra else []
    if not parts and len(columns) != len(expected):
        parts = ["a name occurs twice"]
    if parts:
        raise DataError(
            f"{these} differ from those of {whose}: {'; '.join(parts)}. Give the same columns, in "
            f"any order{hint}."
        )


class _Bar(tqdm):
    monitor_interval = 0  # or even a bar that is not shown starts a thread that stays


def progress_bar(what: str, total: int | None, progress: bool) -> tqdm:
    """A bar on stderr that counts rows."""
    disable = None if progress else True  # None: no bar if stderr is not a terminal
    return _Bar(total=total, desc=what, unit="row", unit_scale=True, leave=False, disable=disable)
