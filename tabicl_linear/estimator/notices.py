"""Messages to users: warnings and errors about their table, and progress bars."""

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
"""Maximum number of columns that a message names."""
MOST_LETTERS = 60
"""Maximum number of letters of a cell or a name in a message."""

_PACKAGE = __name__.partition(".")[0]
_IS_SILENT = ContextVar("_IS_SILENT", default=False)


def warn_user(text: str) -> None:
    """Issue a `UserWarning` that points at the line that called this package.

    Inside `silenced` nothing is issued.
    """
    if _IS_SILENT.get():
        return
    # From Python 3.12 on, `skip_file_prefixes` of warnings.warn would do this.
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level + 1)


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress `warn_user`, for a second fit of rows that a first fit has already warned about.

    Python's own warning filters would not do, as all threads share them.
    """
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)


def brief(value: object) -> str:
    """The `repr` of a cell or a name; the middle of a long one is cut out.

    One cell may hold all of a file, if a quote in it was never closed.
    """
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = MOST_LETTERS
    return shortened.repr(value)


def shown(names: Sequence[Any]) -> str:
    """The first names, quoted only where they could not be read otherwise; see `listed`."""

    def is_plain(text: str) -> bool:
        return text == text.strip() and text.isprintable() and len(text) <= MOST_LETTERS

    return listed(text if is_plain(text) else brief(text) for text in map(str, names))


def listed(texts: Iterable[str]) -> str:
    """The first `MOST_SHOWN` texts, and how many more there are."""
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
    """Raise `DataError`, listing the differences, unless the columns are those expected.

    Their order does not matter.

    Args:
        columns: Names of the columns to check.
        expected: Names that they should have.
        whose: What has the expected columns, for the message.
        these: What has the columns to check; the message begins with it.
        hint: What else the user can do; the message ends with it.
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
    monitor_interval = 0  # otherwise even a hidden bar starts a thread that never ends


def progress_bar(what: str, total: int | None, progress: bool) -> tqdm:
    """A bar on stderr that counts rows."""
    disable = None if progress else True  # None: no bar if stderr is not a terminal
    return _Bar(total=total, desc=what, unit="row", unit_scale=True, leave=False, disable=disable)
