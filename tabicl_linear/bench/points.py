"""Fit and predict of several models at many context sizes, as far as time and memory allow."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from tabicl_linear.bench.peak_memory import available_bytes, peak_bytes
from tabicl_linear.bench.timing import Spread, Ticker, spread, timed, turns
from tabicl_linear.kernels.state import CacheState, map_tensors, num_bytes
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Float, Int, Tensor

QUERIES = 100
"""Rows of a call of predict, as in the paper."""


class Subject(NamedTuple):
    """A model to measure.

    Attributes:
        name: What tables call it.
        model: The model, in evaluation mode.
        most_rows: Largest context to try.
    """

    name: str
    model: InContextModel
    most_rows: int


class Limits(NamedTuple):
    """When to stop.

    Attributes:
        repeats: Calls that count at each point, after one that does not.
        budget: Seconds that a point may take; slow points get fewer calls, at last one, and none
            where that one would not fit.
        reads_made_up_caches: Whether predictions are timed on random caches where fitting one
            would take too long.
    """

    repeats: int
    budget: float
    reads_made_up_caches: bool = False


@dataclass
class Point:
    """One model at one context size; what was not measured is empty or None.

    Attributes:
        name: The model.
        rows: Context rows.
        fit: Seconds of every call.
        predict: Seconds of every call.
        fit_peak: Bytes beyond what was held before.
        predict_peak: The same.
        state_bytes: Bytes of the states of all layers.
        made_up: The state is not fitted: sizes are computed, predictions read random numbers.
        left_out: Why there is no time of fitting.
    """

    name: str
    rows: int
    fit: list[float] = field(default_factory=list)
    predict: list[float] = field(default_factory=list)
    fit_peak: int | None = None
    predict_peak: int | None = None
    state_bytes: int = 0
    made_up: bool = False
    left_out: str | None = None

    @property
    def fit_seconds(self) -> Spread:
        """Median and quartiles."""
        return spread(self.fit)

    @property
    def predict_seconds(self) -> Spread:
        """Median and quartiles, of a call with `QUERIES` rows."""
        return spread(self.predict)


class Meter:
    """Measures points, models taking turns.

    Args:
        device: Where.
        autocast: What to lower to, if anything.
        limits: When to stop.
    """

    def __init__(self, device: torch.device, autocast: torch.dtype | None, limits: Limits) -> None:
        self.device = device
        self.autocast = autocast
        self.limits = limits

    @torch.inference_mode()
    def measure(
        self, subjects: Sequence[Subject], sizes: Sequence[int], progress: Ticker
    ) -> list[Point]:
        """Points of all subjects at all sizes, the smallest first."""
        points: list[Point] = []
        growth = {s.name: state_growth(s.model, self.device, self.autocast) for s in subjects}
        work = [_work(s, rows, growth) for rows in sizes for s in subjects]
        for number, rows in enumerate(sizes):
            x, y = tables(rows, subjects[0].model, self.device)
            queries, _ = tables(QUERIES, subjects[0].model, self.device)
            here = [self._open(s, rows, points, growth[s.name]) for s in subjects]
            points += here
            states = [self._first(s, p, x, y) for s, p in zip(subjects, here, strict=True)]
            self._repeat_fits(subjects, here, x, y)
            self._predict(subjects, here, states, queries)
            progress.advance(sum(work[: (number + 1) * len(subjects)]), sum(work))
        return points

    def _open(
        self, subject: Subject, rows: int, earlier: Sequence[Point], growth: tuple[int, int]
    ) -> Point:
        """The point, with why it is left out where it is."""
        point = Point(subject.name, rows, state_bytes=growth[0] + growth[1] * rows)
        if rows > subject.most_rows:
            point.left_out = f"more than {subject.most_rows:,} rows"
            return point
        available = available_bytes(self.device)
        # Appending keeps the old cache beside the new one.
        if available is not None and growth[1] and 3 * point.state_bytes > available:
            point.left_out = "memory"
            return point
        known = [p for p in earlier if p.name == subject.name and p.fit]
        skipped = [p for p in earlier if p.name == subject.name and p.left_out == "time"]
        if known:
            power = 2 if growth[1] else 1
            expected = known[-1].fit_seconds.median * (rows / known[-1].rows) ** power
            if expected > self.limits.budget or skipped:
                point.left_out = "time"
        return point

    def _first(self, subject: Subject, point: Point, x: Tensor, y: Tensor) -> InContextState | None:
        """Fit once: warm-up, peak memory and, where there is time for no more, the time."""
        if point.left_out is not None:
            return self._made_up(subject, point)
        states: list[InContextState] = []

        def call() -> None:
            point.fit.append(timed(lambda: states.append(self._fit(subject, x, y)), self.device))

        if point.rows <= 4096:
            self._fit(subject, x, y)  # what libraries keep from their first call is no peak
        point.fit_peak = peak_bytes(call, self.device)
        point.state_bytes = num_bytes(states[0].layers)
        return states[0]

    def _made_up(self, subject: Subject, point: Point) -> InContextState | None:
        """A state of random numbers where that is wanted and time was what was missing."""
        point.made_up = True
        if not (self.limits.reads_made_up_caches and point.left_out == "time"):
            return None
        x, y = tables(16, subject.model, self.device)
        small = self._fit(subject, x, y)
        has_cache = any(isinstance(layer.rule_state, CacheState) for layer in small.layers)
        return enlarged(small, point.rows) if has_cache else None

    def _repeat_fits(
        self, subjects: Sequence[Subject], points: Sequence[Point], x: Tensor, y: Tensor
    ) -> None:
        calls = [0 if p.left_out else self._calls(p.fit[0]) for p in points]
        for point, count in zip(points, calls, strict=True):
            if count:
                point.fit.clear()
        for number in range(max(calls)):
            for index in turns(len(points), number):
                if number < calls[index]:
                    fit = self._fitting(subjects[index], x, y)
                    points[index].fit.append(timed(fit, self.device))

    def _fitting(self, subject: Subject, x: Tensor, y: Tensor) -> Callable[[], object]:
        return lambda: self._fit(subject, x, y)

    def _predict(
        self,
        subjects: Sequence[Subject],
        points: Sequence[Point],
        states: Sequence[InContextState | None],
        queries: Tensor,
    ) -> None:
        calls: dict[int, tuple[Callable[[], object], int]] = {}
        for index, state in enumerate(states):
            if state is None:
                continue
            call = self._predicting(subjects[index], state, queries)
            first = timed(call, self.device)
            points[index].predict_peak = peak_bytes(call, self.device)
            calls[index] = call, max(self._calls(first), 1)
        for number in range(max((count for _, count in calls.values()), default=0)):
            for index in turns(len(points), number):
                if index in calls and number < calls[index][1]:
                    call = calls[index][0]
                    call()  # a cache of gigabytes has driven the weights of others out
                    points[index].predict.append(timed(call, self.device))

    def _predicting(
        self, subject: Subject, state: InContextState, queries: Tensor
    ) -> Callable[[], object]:
        def call() -> object:
            with self._precision():
                return subject.model.predict(state, queries)

        return call

    def _fit(self, subject: Subject, x: Tensor, y: Tensor) -> InContextState:
        with self._precision():
            return subject.model.fit(x, y)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    def _calls(self, seconds: float) -> int:
        """Further calls that count; 0 where the first has to."""
        affordable = math.floor(self.limits.budget / max(seconds, 1e-9)) - 1
        return max(min(self.limits.repeats, affordable), 0)


@torch.inference_mode()
def state_growth(
    model: InContextModel, device: torch.device, autocast: torch.dtype | None
) -> tuple[int, int]:
    """Bytes of a fitted state: what it takes in any case, and for every row."""
    sizes = []
    for rows in (16, 17):
        x, y = tables(rows, model, device)
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            sizes.append(num_bytes(model.fit(x, y).layers))
    per_row = sizes[1] - sizes[0]
    return sizes[0] - 16 * per_row, per_row


def tables(
    rows: int, model: InContextModel, device: torch.device
) -> tuple[Float[Tensor, "1 n m"], Int[Tensor, "1 n"]]:
    """One random labelled table of all the columns and classes that a model takes."""
    generator = torch.Generator().manual_seed(rows)
    architecture = model.architecture
    x = torch.randn(1, rows, architecture.num_features, generator=generator)
    y = torch.randint(architecture.num_classes, (1, rows), generator=generator)
    return x.to(device), y.to(device)


def enlarged(state: InContextState, rows: int) -> InContextState:
    """The state with its caches replaced by random ones of `rows` tokens."""

    def grow(x: Tensor) -> Tensor:
        return torch.randn(x.shape[0], rows, *x.shape[2:], device=x.device).to(x.dtype)

    layers = tuple(
        layer._replace(rule_state=map_tensors(grow, layer.rule_state), num_tokens=rows)
        if isinstance(layer.rule_state, CacheState)
        else layer
        for layer in state.layers
    )
    return state._replace(layers=layers)


def _work(subject: Subject, rows: int, growth: dict[str, tuple[int, int]]) -> float:
    """A measure of the time of a point, for progress."""
    return (
        0.0
        if rows > subject.most_rows
        else rows * (1 + rows / 8000 * bool(growth[subject.name][1]))
    )
