"""Tables and panels of time and memory against rows of context."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from scipy import stats

from tabicl_linear.bench.figures import Line, Panel
from tabicl_linear.bench.points import QUERIES, Point, Subject, state_growth
from tabicl_linear.bench.report import Cell, Table, number, spread_text
from tabicl_linear.bench.timing import Spread

SOFTMAX = "softmax"
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}
LONG = 128_000
"""Rows at which the sizes of states are compared."""

What = Literal["fit", "predict", "refit"]
SECONDS: Mapping[What, Callable[[Point], float]] = {
    "fit": lambda p: p.fit_seconds.median,
    "predict": lambda p: p.predict_seconds.median,
    "refit": lambda p: p.fit_seconds.median + p.predict_seconds.median,
}
"""Median seconds of a point; NaN where it was not measured."""

TIMES = (
    "Times are medians and quartiles of repeated calls after one of warm-up, models taking turns "
    "(in every turn of predictions the second of two calls: the first brings the weights back); "
    "where the budget has no room for more, the one call. Ratios are quotients of the medians of "
    "two models at the same number of rows. `peak MB` (10^6 bytes) is what a call takes beyond "
    "what was held before it. "
)
FIT_NOTES = (
    TIMES + "GFLOP/s count the dense layers alone. *computed*: the size of the state follows from "
    "its shapes, it was not fitted. A point is left out where its expected time, judged by the one "
    "before, is above the budget.",
)
PREDICT_NOTES = (
    TIMES + f"A call predicts {QUERIES} rows. GFLOP/s count the dense layers alone, GB/s reading "
    "the state once a call. *refit*: without a cache, the context is read again for every call: "
    "the sum of the measured times of fitting and predicting. *random cache*: fitting took too "
    "long, so predictions read random keys and values of the real shape.",
)


class Fit(NamedTuple):
    """A power law through points: log time = slope x log rows + constant.

    Attributes:
        slope: Least squares.
        low: Lower end of the 95 % interval (Student's t).
        high: Its upper end.
    """

    slope: float
    low: float
    high: float


def power_law(rows: Sequence[float], seconds: Sequence[float]) -> Fit:
    """The slope of log seconds against log rows; NaN ends for fewer than three points."""
    if len(rows) < 2:
        return Fit(math.nan, math.nan, math.nan)
    result = stats.linregress([math.log(n) for n in rows], [math.log(s) for s in seconds])
    if len(rows) < 3:
        return Fit(float(result.slope), math.nan, math.nan)
    margin = float(stats.t.ppf(0.975, len(rows) - 2) * result.stderr)
    return Fit(float(result.slope), float(result.slope) - margin, float(result.slope) + margin)


def fit_table(points: Sequence[Point], per_row: float, precision: str, note: str) -> Table:
    """Time, throughput, work, ratio, peak memory and state of every fit.

    Args:
        points: What was measured; the first is of the model that is compared with softmax.
        per_row: Operations of its dense layers for a row of context.
        precision: Of the matrix products.
        note: What else a reader must know.
    """
    ours = points[0].name
    columns = (
        *("", "rows", "s (quartiles)", "rows/s", "GFLOP/s"),
        *(f"times faster than {SOFTMAX}", "peak MB", "state bytes"),
    )
    rows: list[list[Cell]] = []
    for p in points:
        if p.left_out is not None:
            rows.append([p.name, f"{p.rows:,}", f"left out: {p.left_out}", *[None] * 4, _state(p)])
            continue
        rate = p.rows / p.fit_seconds.median
        rows.append(
            [
                p.name,
                f"{p.rows:,}",
                spread_text(p.fit_seconds),
                number(rate),
                number(per_row * rate / 1e9) if p.name == ours else None,
                *_quotients(points, p, ("fit",)),
                _megabytes(p.fit_peak),
                _state(p),
            ]
        )
    return Table(f"Fitting a context, {precision}", columns, rows, (*FIT_NOTES, "", note))


def predict_table(points: Sequence[Point], per_row: float, precision: str, note: str) -> Table:
    """Time per predicted row against rows of context, with and without a cache.

    Args:
        points: What was measured; the first is of the model that is compared with softmax.
        per_row: Operations of its dense layers for a predicted row.
        precision: Of the matrix products.
        note: What else a reader must know.
    """
    ours = points[0].name
    columns = (
        *("", "context rows", "ms a predicted row (quartiles)", "rows/s", "GFLOP/s", "GB/s"),
        f"times faster than {SOFTMAX} with cache",
        *(f"times faster than {SOFTMAX}, refit", "peak MB", "state bytes"),
    )
    rows: list[list[Cell]] = []
    for p in points:
        per_call = p.predict_seconds
        if not p.predict:
            rows.append([p.name, f"{p.rows:,}", f"left out: {p.left_out}", *[None] * 6, _state(p)])
            continue
        rate = QUERIES / per_call.median
        rows.append(
            [
                f"{p.name}, random cache" if p.made_up else p.name,
                f"{p.rows:,}",
                spread_text(Spread(*(1000 * value / QUERIES for value in per_call))),
                number(rate),
                number(per_row * rate / 1e9) if p.name == ours else None,
                number(p.state_bytes / per_call.median / 1e9),
                *_quotients(points, p, ("predict", "refit")),
                _megabytes(p.predict_peak),
                _state(p),
            ]
        )
        if p.name == SOFTMAX and p.fit:
            total = SECONDS["refit"](p)
            cost, again = number(1000 * total / QUERIES), number(QUERIES / total)
            rows.append([f"{p.name}, refit", f"{p.rows:,}", cost, again, *[None] * 6])
    title = f"Predicting from a fitted context, {precision}"
    return Table(title, columns, rows, (*PREDICT_NOTES, "", note))


def plain(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Points as plain data, with rates, and how many times faster each is than softmax."""
    return [
        {
            **vars(p),
            "fit_rows_per_second": p.rows / p.fit_seconds.median,
            "predict_rows_per_second": QUERIES / p.predict_seconds.median,
            "times_faster_than_softmax": {what: _ratio(points, p, what) for what in SECONDS},
        }
        for p in points
    ]


def slopes(points: Sequence[Point], what: What) -> Table:
    """Power laws through all points and through the larger half of them."""
    rows: list[tuple[str, str, str]] = []
    for name in dict.fromkeys(p.name for p in points):
        known = [(p.rows, SECONDS[what](p)) for p in points if p.name == name]
        known = [(n, seconds) for n, seconds in known if not math.isnan(seconds)]
        for part in (known, known[len(known) // 2 :]):
            if len(part) < 2:
                continue
            law = power_law(*zip(*part, strict=True))
            interval = "" if math.isnan(law.low) else f" ({law.low:.2f} to {law.high:.2f})"
            rows.append((name, f"{part[0][0]:,} to {part[-1][0]:,}", f"{law.slope:.2f}{interval}"))
    return Table(
        f"Exponent of the time to {what} in rows of context",
        ("", "rows", "slope of log time against log rows (95 % interval)"),
        rows,
    )


def states(subjects: Sequence[Subject], device: torch.device) -> Table:
    """Bytes of fitted states: measured on 16 and 17 rows, computed at many."""
    rows: list[tuple[str, str, str, str, str]] = []
    for subject in subjects:
        for precision, autocast in PRECISIONS.items():
            fixed, per_row = state_growth(subject.model, device, autocast)
            long = fixed + per_row * LONG
            rows.append((subject.name, precision, f"{fixed:,}", f"{per_row:,}", f"{long:,}"))
    return Table(
        "State of one table, all layers",
        ("", "precision", "bytes", "bytes a row", f"bytes at {LONG:,} rows"),
        rows,
        ("From real states of 16 and 17 rows; at many rows computed from those.",),
    )


def panels(points: Sequence[Point]) -> list[Panel]:
    """What the figure shows: runtime of fitting and predicting, and the size of states."""
    names = list(dict.fromkeys(p.name for p in points))
    labels = {name: f"{name}, KV cache" if name == SOFTMAX else name for name in names}
    fits = [_line(points, n, SECONDS["fit"], labels[n]) for n in names]
    predictions = [_line(points, n, SECONDS["predict"], labels[n]) for n in names]
    if SOFTMAX in names:
        again = f"{SOFTMAX}, no cache (context read again)"
        predictions.append(_line(points, SOFTMAX, SECONDS["refit"], again))
    sizes = [_line(points, n, lambda p: float(p.state_bytes), labels[n]) for n in names]
    return [
        Panel("Fit: read the context", "s", [_with_slope(line) for line in fits]),
        Panel(f"Predict {QUERIES} rows", "s", [_with_slope(line) for line in predictions]),
        Panel("State of one table", "B", [_with_size(line) for line in sizes]),
    ]


def _line(points: Sequence[Point], name: str, value: Callable[[Point], float], label: str) -> Line:
    own = [(p.rows, value(p), p.made_up) for p in points if p.name == name]
    own = [point for point in own if not math.isnan(point[1])]
    made_up = sum(made for _, _, made in own)
    return Line(label, [x for x, _, _ in own], [y for _, y, _ in own], made_up)


def _with_slope(line: Line) -> Line:
    """The line with the exponent of its larger half as a note."""
    half = len(line.x) // 2
    slope = power_law(line.x[half:], line.y[half:]).slope
    return line if math.isnan(slope) else line._replace(note=f"slope {slope:.2f}")


def _with_size(line: Line) -> Line:
    return line._replace(note=f"{number(line.y[-1] / 1e6)} MB")


def _ratio(points: Sequence[Point], ours: Point, what: What) -> float:
    """How many times faster than softmax, which without a cache is fitted again; NaN if unknown."""
    rival = next((p for p in points if p.name == SOFTMAX and p.rows == ours.rows), None)
    if rival is None:
        return math.nan
    return SECONDS[what](rival) / SECONDS["predict" if what == "refit" else what](ours)


def _quotients(points: Sequence[Point], ours: Point, kinds: Sequence[What]) -> list[str | None]:
    """The ratios as text; nothing for softmax itself."""
    values = [math.nan if ours.name == SOFTMAX else _ratio(points, ours, what) for what in kinds]
    return [None if math.isnan(value) else number(value) for value in values]


def _megabytes(peak: int | None) -> str | None:
    return None if peak is None else number(peak / 1e6)


def _state(p: Point) -> str:
    return f"{p.state_bytes:,}" + (", computed" if p.made_up else "")
