"""Messages that are logged, in place of pytest's `caplog`.

Its plugin puts handlers up and takes them down three times in every test, of which few look.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Kept(logging.Handler):
    """Keeps the text of every record."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def messages_of(name: str) -> Iterator[list[str]]:
    """What any logger says meanwhile, where the one of this name says all from INFO on."""
    root, logger, kept = logging.getLogger(), logging.getLogger(name), _Kept()
    level = logger.level
    root.addHandler(kept)
    logger.setLevel(logging.INFO)
    try:
        yield kept.messages
    finally:
        logger.setLevel(level)
        root.removeHandler(kept)
