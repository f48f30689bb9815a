"""Warnings about a user's table."""

import inspect
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_user(text: str) -> None:
    """Warn at the line that called this package, however deep inside it the reason was found."""
    # skip_file_prefixes of warnings.warn would do this, from Python 3.12 on.
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level + 1)
