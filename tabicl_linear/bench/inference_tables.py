"""Tables and panels of time and memory against rows of context."""

import math

import pandas as pd
from scipy import stats

from tabicl_linear.bench.report import Table, number, spread_text

SOFTMAX = "softmax"
QUERIES = 100
"""Rows of a call of predict, as in the paper."""

TIMES = (
    "Times are medians and quartiles of rounds in which models take turns; where the budget has no "
    "room for that, of one call. Ratios are quotients of medians. `peak MB` (10^6 bytes) is what a "
    "call takes beyond what was held before it. A point is left out where its expected time, "
    "judged by the one before, is above the budget; the size of its state is computed. "
)
NOTES = {
    "fit": TIMES,
    "predict": TIMES + f"A call predicts {QUERIES} rows. *refit*: without a cache, the context is "
    "read again for every call: the sum of the measured times of fitting and predicting.",
}


def completed(points: pd.DataFrame) -> pd.DataFrame:
    """Points with the time without a cache, and how many times faster each is than softmax."""
    columns = [f"{what}{end}" for what in ("fit", "predict") for end in ("", "_spread", "_peak")]
    points = points.reindex(columns=list(dict.fromkeys([*points.columns, *columns])))
    points["refit"] = points["fit"] + points["predict"]
    points["fit_rows_per_second"] = points["rows"] / points["fit"]
    points["predict_rows_per_second"] = QUERIES / points["predict"]
    base = points[points["name"] == SOFTMAX].set_index("rows")
    for what, ours in (("fit", "fit"), ("predict", "predict"), ("refit", "predict")):
        points[f"{what}_ratio"] = points["rows"].map(base[what]) / points[ours]
    return points


def table(verb: str, points: pd.DataFrame, precision: str, note: str = "") -> Table:
    """Time, throughput, ratios, peak memory and state of every fit or prediction."""
    is_fit = verb == "fit"
    rows = []
    for p in points.to_dict("records"):
        seconds, is_ours = p[verb], p["name"] != SOFTMAX
        row = {"": p["name"], "rows of context": f"{p['rows']:,}"}
        time = "s (quartiles)" if is_fit else "ms a predicted row (quartiles)"
        if math.isnan(seconds):
            row[time] = f"left out: {p['left_out']}"
        else:
            row[time] = spread_text(p[f"{verb}_spread"], 1 if is_fit else 1000 / QUERIES)
            row["rows/s"] = number(p[f"{verb}_rows_per_second"])
        for what in ("fit",) if is_fit else ("predict", "refit"):
            ratio = p[f"{what}_ratio"]
            known = is_ours and not math.isnan(ratio)
            end = ", context read again" if what == "refit" else ""
            row[f"times faster than {SOFTMAX}{end}"] = number(ratio) if known else None
        peak = p[f"{verb}_peak"]
        row["peak MB"] = None if pd.isna(peak) else number(peak / 1e6)
        row["state bytes"] = f"{p['state_bytes']:,}" + (
            "" if pd.isna(p["left_out"]) else ", computed"
        )
        rows.append(row)
    title = "Fitting a context" if is_fit else "Predicting from a fitted context"
    return Table(f"{title}, {precision}", pd.DataFrame(rows), NOTES[verb] + note)


def power_law(times: "pd.Series[float]") -> tuple[float, float]:
    """The slope of log seconds against log rows, the index, and half its 95 % interval.

    Least squares and Student's t; NaN where there are too few points.
    """
    if len(times) < 2:
        return math.nan, math.nan
    law = stats.linregress([math.log(n) for n in times.index], [math.log(s) for s in times])
    few = len(times) < 3
    return law.slope, math.nan if few else stats.t.ppf(0.975, len(times) - 2) * law.stderr


def slopes(verb: str, points: pd.DataFrame) -> Table:
    """Power laws through all points and through the larger half of them."""
    rows = []
    for name, own in points.groupby("name", sort=False):
        known = own.set_index("rows")[verb].dropna()
        for part in (known, known.iloc[len(known) // 2 :]):
            if len(part) > 1:
                slope, margin = power_law(part)
                ends = f" ({slope - margin:.2f} to {slope + margin:.2f})"
                span = f"{part.index[0]:,} to {part.index[-1]:,}"
                rows.append((name, span, f"{slope:.2f}{'' if math.isnan(margin) else ends}"))
    columns = ["", "rows", "slope of log time against log rows (95 % interval)"]
    title = f"Exponent of the time to {verb} in rows of context"
    return Table(title, pd.DataFrame(rows, columns=columns))


def panels(points: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What the figure shows, by title: name of the line, rows, value, whether it was computed."""
    points = points.assign(is_computed=points["left_out"].notna())
    named = points.replace({"name": {SOFTMAX: f"{SOFTMAX}, KV cache"}})
    again = points[points["name"] == SOFTMAX].assign(
        name=f"{SOFTMAX}, no cache (context read again)", predict=points["refit"]
    )
    shown = {
        "Fit: read the context (s)": named.assign(value=named["fit"]),
        f"Predict {QUERIES} rows (s)": pd.concat([named, again]).assign(
            value=lambda p: p["predict"]
        ),
        "State of one table (bytes)": named.assign(value=named["state_bytes"]),
    }
    columns = ["name", "rows", "value", "is_computed"]
    return {title: p[columns].dropna() for title, p in shown.items()}
