"""Tables and figure of time and memory against rows of context."""

import math

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, NullFormatter
from scipy import stats

from tabicl_linear.analysis import figures
from tabicl_linear.bench.measurement_tables import Table, number, spread_text

SOFTMAX = "softmax"
QUERIES = 100
"""Query rows in one call of predict, as in the paper."""

TIMES = (
    "Times are medians and quartiles of rounds in which models take turns, or of one call if the "
    "budget does not allow more. Ratios are quotients of medians. `peak MB` (10^6 bytes) is what a "
    "call needs beyond what was held before it. A point is left out if its expected time, judged "
    "by the previous one, exceeds the budget; the size of its state is then computed. "
)
NOTES = {
    "fit": TIMES,
    "predict": TIMES + f"A call predicts {QUERIES} rows. *Context read again*: without a cache, "
    "for every call: the sum of the measured times of fitting and predicting.",
}


def completed(points: pd.DataFrame) -> pd.DataFrame:
    """Add to points the time without a cache (`refit`), rates, and ratios to softmax attention."""
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
    """Return the table of time, throughput, ratios, peak memory and state of fit or predict."""
    title, time, factor, ratios = {
        "fit": ("Fitting a context", "s", 1.0, {"fit": ""}),
        "predict": (
            *("Predicting from a fitted context", "ms a predicted row", 1000 / QUERIES),
            {"predict": "", "refit": ", context read again"},
        ),
    }[verb]
    cells = pd.DataFrame({"": points["name"], "rows of context": points["rows"].map("{:,}".format)})
    cells[f"{time} (quartiles)"] = [
        f"left out: {reason}" if pd.isna(seconds) else spread_text(spread, factor)
        for seconds, spread, reason in points[[verb, f"{verb}_spread", "left_out"]].values.tolist()
    ]
    numbers = {"rows/s": points[f"{verb}_rows_per_second"]}
    for what, end in ratios.items():
        ours = points[f"{what}_ratio"].where(points["name"] != SOFTMAX)
        numbers[f"times faster than {SOFTMAX}{end}"] = ours
    numbers["peak MB"] = points[f"{verb}_peak"].astype(float) / 1e6
    for column, values in numbers.items():
        cells[column] = values.map(number, na_action="ignore")
    computed = points["left_out"].isna().map({True: "", False: ", computed"})
    cells["state bytes"] = points["state_bytes"].map("{:,}".format) + computed
    return Table(f"{title}, {precision}", cells, NOTES[verb] + note)


def power_law(times: "pd.Series[float]") -> tuple[float, float]:
    """Fit the slope of log seconds against log rows; return it with half its 95 % interval.

    Args:
        times: Seconds, indexed by rows.

    Returns:
        The slope by least squares, and the half-width by Student's t; NaN with too few points.
    """
    if len(times) < 2:
        return math.nan, math.nan
    law = stats.linregress([math.log(n) for n in times.index], [math.log(s) for s in times])
    few = len(times) < 3
    return law.slope, math.nan if few else stats.t.ppf(0.975, len(times) - 2) * law.stderr


def slopes(verb: str, points: pd.DataFrame) -> Table:
    """Return the exponents of power laws through all points, and through the larger sizes only."""
    rows = []
    for name, own in points.groupby("name", sort=False):
        times = own.set_index("rows")[verb].dropna()
        for part in (times, times.iloc[len(times) // 2 :]):
            if len(part) > 1:
                slope, margin = power_law(part)
                ends = f" ({slope - margin:.2f} to {slope + margin:.2f})"
                span = f"{part.index[0]:,} to {part.index[-1]:,}"
                rows.append((name, span, f"{slope:.2f}{'' if math.isnan(margin) else ends}"))
    cells = pd.DataFrame(
        rows, columns=["", "rows", "slope of log time against log rows (95 % interval)"]
    )
    return Table(f"Exponent of the time to {verb} in rows of context", cells)


def panels(points: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the data of each panel by title: columns name (of line), rows, value, is_computed."""
    points = points.assign(is_computed=points["left_out"].notna())
    renamed_points = points.replace({"name": {SOFTMAX: f"{SOFTMAX}, KV cache"}})
    again = points[points["name"] == SOFTMAX].assign(
        name=f"{SOFTMAX}, no cache (context read again)", predict=points["refit"]
    )
    sources = {
        "Fit: read the context (s)": (renamed_points, "fit"),
        f"Predict {QUERIES} rows (s)": (pd.concat([renamed_points, again]), "predict"),
        "State of one table (bytes)": (renamed_points, "state_bytes"),
    }
    columns = ["name", "rows", "value", "is_computed"]
    return {t: p.rename(columns={c: "value"})[columns].dropna() for t, (p, c) in sources.items()}


def draw_scaling(points: pd.DataFrame) -> Figure:
    """Draw log-log panels over rows of context; sizes that were computed, not measured, are dashed.

    Lines with the same name share a colour. A note at its end gives a line's slope or last size.
    """
    tables = panels(points)
    figure, axes = figures.panels(len(tables), width=4.4, height=3.6)
    everything = pd.concat(tables.values())
    names, sizes = list(everything["name"].unique()), sorted(everything["rows"].unique())
    for axis, (title, panel) in zip(axes, tables.items(), strict=True):
        for name, line in panel.set_index("rows").groupby("name"):
            values, colour = line["value"], f"C{names.index(name)}"
            axis.plot(values[~line["is_computed"].astype(bool)], "o-", color=colour, markersize=4)
            axis.plot(values, "--", color=colour)  # hidden where it has been fitted
            slope, _ = power_law(values.iloc[len(values) // 2 :])
            note = "" if math.isnan(slope) else f"slope {slope:.2f}"
            note = f"{values.iloc[-1] / 1e6:.3g} MB" if "bytes" in title else note
            end = values.index[-1] * 1.1, values.iloc[-1]
            axis.annotate(note, end, color=colour, fontsize=8, verticalalignment="center")
        axis.set(title=title, xlabel="rows of context", xscale="log", yscale="log")
        axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 6)  # room for the notes
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(EngFormatter(sep=""))
            scale.set_minor_formatter(NullFormatter())
    handles = [Line2D([], [], color=f"C{i}", marker="o", label=n) for i, n in enumerate(names)]
    if everything["is_computed"].any():
        text = "computed size of a state that was not fitted"
        handles.append(Line2D([], [], color="grey", linestyle="--", label=text))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure
