"""Figures of the bench command."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, NullFormatter

from tabicl_linear.bench.report import write_whole

SMOOTHING = 20
"""Steps in a running mean of a loss curve."""

UNITS = {"s": "time (s)", "B": "size (bytes)"}
"""Label of a vertical axis by its unit."""


class Line(NamedTuple):
    """One line of a log-log panel.

    Attributes:
        name: What the legend says.
        x: Rows.
        y: Values above 0.
        num_computed: How many points at the end are not of a fitted model: drawn dashed.
        note: What is written beside its last point.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    num_computed: int = 0
    note: str = ""


class Panel(NamedTuple):
    """One log-log panel.

    Attributes:
        title: What it shows.
        unit: Of the vertical axis.
        lines: Its lines.
    """

    title: str
    unit: str
    lines: Sequence[Line]


def draw_scaling(panels: Sequence[Panel], path: Path) -> Path:
    """Log-log panels side by side over rows of context; lines of one name share their colour."""
    figure = Figure(figsize=(4.6 * len(panels), 4), layout="constrained")
    axes: list[Axes] = list(figure.subplots(1, len(panels), squeeze=False)[0])
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    sizes = sorted({x for panel in panels for line in panel.lines for x in line.x})
    for axis, panel in zip(axes, panels, strict=True):
        for line in panel.lines:
            _draw(axis, line, f"C{names.index(line.name)}")
        axis.set(title=panel.title, xlabel="rows of context", ylabel=UNITS[panel.unit])
        axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 6)  # room for the notes
        axis.set_xticks(sizes[:: math.ceil(len(sizes) / 6)], minor=False)
        axis.set_xticks([], minor=True)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        values = [y for line in panel.lines for y in line.y]
        low, high = math.floor(math.log10(min(values) / 1.2)), math.ceil(math.log10(max(values)))
        axis.set_ylim(10.0**low, 10.0 ** max(high, low + 1))
        axis.yaxis.set_major_formatter(EngFormatter(panel.unit))
        axis.yaxis.set_minor_formatter(NullFormatter())
        _tidy(axis)
    handles = [Line2D([], [], color=f"C{i}", marker="o", label=n) for i, n in enumerate(names)]
    if any(line.num_computed for panel in panels for line in panel.lines):
        dashed = "not fitted: random cache of the real size, computed size"
        handles.append(
            Line2D([], [], color="grey", linestyle="--", marker="o", mfc="white", label=dashed)
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return write_whole(path, lambda partial: figure.savefig(partial, dpi=130, format="png"))


def _draw(axis: Axes, line: Line, colour: str) -> None:
    if not line.x:
        return
    fitted = len(line.x) - line.num_computed
    axis.loglog(line.x[:fitted], line.y[:fitted], "o-", color=colour, markersize=4)
    if line.num_computed:
        start = max(fitted - 1, 0)
        axis.loglog(line.x[start:], line.y[start:], "--", color=colour)
        hollow = {"markersize": 4, "markerfacecolor": "white"}
        axis.loglog(line.x[fitted:], line.y[fitted:], "o", color=colour, **hollow)
    axis.annotate(
        line.note,
        (line.x[-1], line.y[-1]),
        xytext=(5, 0),
        textcoords="offset points",
        verticalalignment="center",
        color=colour,
        fontsize=8,
    )


def _short(value: float) -> str:
    """Rows in thousands or millions."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def draw_curves(losses: Mapping[str, Sequence[float]], path: Path) -> Path:
    """Loss curves over each other: running means, and the differences from the first."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    first = next(iter(losses.values()))
    for name, values in losses.items():
        left.plot(running_mean(values), label=name, linewidth=1)
        differences = [value - base for value, base in zip(values, first, strict=True)]
        right.plot(running_mean(differences), label=name, linewidth=1)
    left.set(xlabel="optimiser steps", ylabel=f"training loss (mean of {SMOOTHING} steps)")
    right.set(xlabel="optimiser steps", ylabel=f"difference from {next(iter(losses))}")
    left.legend(frameon=False)
    _tidy(left)
    _tidy(right)
    return write_whole(path, lambda partial: figure.savefig(partial, dpi=130, format="png"))


def running_mean(values: Sequence[float], window: int = SMOOTHING) -> list[float]:
    """Mean of every value and those before it, `window` in all, fewer at the start."""
    spans = (values[max(0, i + 1 - window) : i + 1] for i in range(len(values)))
    return [sum(span) / len(span) for span in spans]


def _tidy(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
