"""Reports the progress of an evaluation, with an estimate of the remaining time."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

from tabicl_linear.durations import in_words

EVERY = 20.0
"""Least seconds between two lines."""


class Progress:
    """Reports from time to time how many trials are done, and how much time is left.

    The estimate counts the trials that each model still has, times its mean time per trial so far,
    as one model can take a thousand times as long as another.

    Args:
        models: The model of every trial to come.
        total: Number of all trials, including those done before.
        jobs: Number of processes.
        say: Called with each line.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        models: Sequence[str],
        total: int,
        jobs: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._left = Counter(models)
        self._total = total
        self._jobs = jobs
        self._say = say
        self._clock = clock
        self._began = self._said = clock()
        self._seconds: dict[str, list[float]] = {model: [] for model in models}
        self._failed = 0
        if len(models) < total:
            say(f"{total - len(models)} of {total} trials were done before")

    def done(self, model: str, *, seconds: float, failed: bool) -> None:
        """Count a finished trial of a model; report if a line is due."""
        self._left[model] -= 1
        self._seconds[model].append(seconds)
        self._failed += failed
        now = self._clock()
        last = not self._left.total()
        if last or now - self._said >= EVERY:
            self._said = now
            self._say(self._line(now))

    def seconds_left(self) -> float:
        """Estimated seconds left. A model without a finished trial counts as the mean trial."""
        durations = [seconds for one in self._seconds.values() for seconds in one] or [0.0]
        means = {model: fmean(one or durations) for model, one in self._seconds.items()}
        return sum(number * means[model] for model, number in self._left.items()) / self._jobs

    def _line(self, now: float) -> str:
        left = self._left.total()
        line = f"{self._total - left} of {self._total} trials"
        if self._failed:
            line += f", {self._failed} failed"
        if not left:
            return f"{line}, in {in_words(now - self._began)}"
        return f"{line}, about {in_words(self.seconds_left())} left"
