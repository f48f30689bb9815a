"""Tables and panels of time and memory against rows of context."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from scipy import stats

from tabicl_linear.bench.figures import Line
from tabicl_linear.bench.points import QUERIES, Point, Subject, state_growth
from tabicl_linear.bench.report import Cell, Table, number, spread_text
from tabicl_linear.bench.timing import Contestant, Spread, Timings, spread

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

FIT_NOTES = (
    "Ratios are medians of one model over another at the same number of rows. `peak MB` is what a "
    "call takes beyond its arguments. *computed*: the size of the state follows from its shapes, "
    "it was not fitted. A point is left out where its expected time, judged by the one before, is "
    "above the budget.",
)
PREDICT_NOTES = (
    f"A call predicts {QUERIES} rows. *refit*: without a cache, the context is read again for "
    "every call: the sum of the measured times of fitting and predicting. *random cache*: fitting "
    "took too long, so predictions read random keys and values of the real shape.",
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


def fit_table(
    points: Sequence[Point],
    floor: tuple[list[Contestant], Timings],
    autocast: torch.dtype | None,
) -> Table:
    """Time, throughput, peak memory and state of every fit, and the floor under the first model."""
    field, timings = floor
    per_row = field[0].flops / field[0].units
    ours = points[0].name
    rows: list[list[Cell]] = []
    for p in points:
        rival = _at(points, SOFTMAX, p.rows)
        if p.left_out is not None:
            rows.append([p.name, f"{p.rows:,}", f"left out: {p.left_out}", *[None] * 4, _state(p)])
            continue
        seconds = p.fit_seconds
        rows.append(
            [
                p.name,
                f"{p.rows:,}",
                spread_text(seconds),
                number(p.rows / seconds.median),
                number(per_row * p.rows / seconds.median / 1e9) if p.name == ours else None,
                _quotient(rival, p, "fit") if p.name == ours else None,
                None if p.fit_peak is None else number(p.fit_peak / 1e6),
                _state(p),
            ]
        )
    for c in field:
        median = spread(timings[c.key]).median
        rate = number(c.flops / median / 1e9) if c.flops else f"{c.moved / median / 1e9:.1f} GB/s"
        throughput = number(c.units / median) if c.units else None
        count = f"{c.units:,.0f}" if c.units else None
        rows.append([f"*{c.name}*", count, spread_text(spread(timings[c.key])), throughput, rate])
    columns = ("", "rows", "s (quartiles)", "rows/s", "GFLOP/s in dense layers")
    rest = (f"times faster than {SOFTMAX}", "peak MB", "state bytes")
    width = len(columns) + len(rest)
    padded = [row + [None] * (width - len(row)) for row in rows]
    precision = "float32" if autocast is None else str(autocast).removeprefix("torch.")
    return Table(f"Fitting a context, {precision}", (*columns, *rest), padded, FIT_NOTES)


def predict_table(points: Sequence[Point]) -> Table:
    """Time per predicted row against rows of context, with and without a cache."""
    ours = points[0].name
    columns = (
        *("", "rows", "ms a row (quartiles)", "rows/s", f"times faster than {SOFTMAX} with cache"),
        *(f"times faster than {SOFTMAX}, refit", "peak MB", "state bytes"),
    )
    rows: list[list[Cell]] = []
    for p in points:
        per_row = Spread(*(1000 * value / QUERIES for value in p.predict_seconds))
        if not p.predict:
            rows.append([p.name, f"{p.rows:,}", f"left out: {p.left_out}", *[None] * 4, _state(p)])
            continue
        rival = _at(points, SOFTMAX, p.rows)
        rows.append(
            [
                f"{p.name}, random cache" if p.made_up else p.name,
                f"{p.rows:,}",
                spread_text(per_row),
                number(1000 / per_row.median),
                _quotient(rival, p, "predict") if p.name == ours else None,
                _quotient(rival, p, "refit") if p.name == ours else None,
                None if p.predict_peak is None else number(p.predict_peak / 1e6),
                _state(p),
            ]
        )
        if p.name == SOFTMAX and p.fit:
            total = p.fit_seconds.median + p.predict_seconds.median
            cost, rate = number(1000 * total / QUERIES), number(QUERIES / total)
            rows.append([f"{p.name}, refit", f"{p.rows:,}", cost, rate, *[None] * 4])
    return Table("Predicting from a fitted context", columns, rows, PREDICT_NOTES)


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


def panels(points: Sequence[Point]) -> dict[str, list[Line]]:
    """What the figure shows: runtime of fitting and predicting, and the size of states."""
    names = list(dict.fromkeys(p.name for p in points))

    def line(label: str, name: str, value: Callable[[Point], float], made_up: bool | None) -> Line:
        own = [
            (p.rows, value(p)) for p in points if p.name == name and made_up in (None, p.made_up)
        ]
        own = [(x, y) for x, y in own if not math.isnan(y)]
        return Line(label, [x for x, _ in own], [y for _, y in own], made_up is True)

    labels = {name: f"{name}, cache" if name == SOFTMAX else name for name in names}
    predict = [
        line(labels[n], n, SECONDS["predict"], made) for n in names for made in (False, True)
    ]
    if SOFTMAX in names:
        predict.append(line(f"{SOFTMAX}, refit", SOFTMAX, SECONDS["refit"], False))
    return {
        "seconds to fit": [line(labels[n], n, SECONDS["fit"], None) for n in names],
        f"seconds to predict {QUERIES} rows": predict,
        "bytes of state": [
            line(labels[n], n, lambda p: float(p.state_bytes), made)
            for n in names
            for made in (False, True)
        ],
    }


def _at(points: Sequence[Point], name: str, rows: int) -> Point | None:
    return next((p for p in points if p.name == name and p.rows == rows), None)


def _quotient(rival: Point | None, ours: Point, what: What) -> str | None:
    """How many times faster; a rival that is fitted again is compared with our predictions."""
    if rival is None:
        return None
    mine = SECONDS["predict" if what == "refit" else what](ours)
    ratio = SECONDS[what](rival) / mine
    return None if math.isnan(ratio) else number(ratio)


def _state(p: Point) -> str:
    return f"{p.state_bytes:,}" + (", computed" if p.made_up else "")
