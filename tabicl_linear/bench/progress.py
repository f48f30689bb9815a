"""A line of progress with the time left."""

import sys
import time
from typing import TextIO


class ProgressLine:
    """Writes how far a measurement is: in place on a terminal, else a line now and then.

    Args:
        label: What is measured.
        stream: Where to write.
        seconds: Between two lines where the stream is not a terminal.
    """

    def __init__(self, label: str, stream: TextIO | None = None, seconds: float = 10.0) -> None:
        self.label = label
        self.stream = sys.stderr if stream is None else stream
        self.in_place = self.stream.isatty()
        self.seconds = 0.2 if self.in_place else seconds
        self._began = self._shown = time.monotonic()

    def advance(self, done: float, total: float) -> None:
        """`done` of `total` is finished."""
        now = time.monotonic()
        if done < total and now - self._shown < self.seconds:
            return
        self._shown = now
        left = (now - self._began) * (total - done) / max(done, 1e-9)
        line = f"{self.label}: {done / total:4.0%}, {clock(left)} left"
        if not self.in_place:
            self.stream.write(line + "\n")
        else:
            self.stream.write(f"\r\x1b[2K{line}" + ("\n" if done >= total else ""))
        self.stream.flush()


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
