"""Figures of the bench command."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, NullFormatter

from tabicl_linear.bench.inference_tables import power_law
from tabicl_linear.bench.report import write_whole

SMOOTHING = 20
"""Steps in a running mean of a loss curve."""


def draw_scaling(panels: Mapping[str, pd.DataFrame], path: Path) -> Path:
    """Log-log panels side by side over rows of context; lines of one name share their colour.

    A panel has the name of a line, rows, value and `is_computed`, which is drawn dashed.
    """
    figure = Figure(figsize=(4.6 * len(panels), 4), layout="constrained")
    axes: list[Axes] = list(figure.subplots(1, len(panels), squeeze=False)[0])
    everything = pd.concat(panels.values())
    names, sizes = list(everything["name"].unique()), sorted(everything["rows"].unique())
    for axis, (title, points) in zip(axes, panels.items(), strict=True):
        for name, line in points.groupby("name"):
            _draw(axis, line.set_index("rows"), f"C{names.index(name)}", in_bytes="bytes" in title)
        axis.set(title=title, xlabel="rows of context", xscale="log", yscale="log")
        axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 6)  # room for the notes
        axis.set_xticks(sizes[:: math.ceil(len(sizes) / 6)], minor=False)
        axis.set_xticks([], minor=True)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        low, high = (math.log10(end(points["value"])) for end in (min, max))
        low = math.floor(low)  # whole decades, which have labels
        axis.set_ylim(10.0**low, 10.0 ** max(math.ceil(high), low + 1))
        axis.yaxis.set_major_formatter(EngFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        _tidy(axis)
    handles = [Line2D([], [], color=f"C{i}", marker="o", label=n) for i, n in enumerate(names)]
    if everything["is_computed"].any():
        text = "computed size of a state that was not fitted"
        handles.append(Line2D([], [], color="grey", linestyle="--", label=text))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return write_whole(path, _png(figure))


def _draw(axis: Axes, line: pd.DataFrame, colour: str, *, in_bytes: bool) -> None:
    """A line, dashed from its last fitted point on, with its slope or last size as a note."""
    values, dashed = line["value"], line["is_computed"].astype(bool)
    axis.plot(values[~dashed], "o-", color=colour, markersize=4)
    if dashed.any():
        axis.plot(values.iloc[max((~dashed).sum() - 1, 0) :], "--", color=colour)
    slope, _ = power_law(values.iloc[len(values) // 2 :])
    note = f"{values.iloc[-1] / 1e6:.3g} MB" if in_bytes else f"slope {slope:.2f}"
    where: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
    if in_bytes or not math.isnan(slope):
        end = values.index[-1], values.iloc[-1]
        axis.annotate(note, end, color=colour, fontsize=8, **where)


def draw_curves(losses: pd.DataFrame, path: Path) -> Path:
    """Loss curves over each other: running means, and the differences from the first."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    smooth = losses.rolling(SMOOTHING, min_periods=1).mean()
    for name, values in smooth.items():
        left.plot(values, label=name, linewidth=1)
        right.plot(values - smooth.iloc[:, 0], label=name, linewidth=1)
    left.set(xlabel="optimiser steps", ylabel=f"training loss (mean of {SMOOTHING} steps)")
    right.set(xlabel="optimiser steps", ylabel=f"difference from {losses.columns[0]}")
    left.legend(frameon=False)
    _tidy(left)
    _tidy(right)
    return write_whole(path, _png(figure))


def _png(figure: Figure) -> Callable[[Path], None]:
    return lambda path: figure.savefig(path, dpi=130, format="png")


def _tidy(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
