"""Figures of the bench command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tabicl_linear.bench.report import write_whole

SMOOTHING = 20
"""Steps in a running mean of a loss curve."""


class Line(NamedTuple):
    """One line of a log-log panel.

    Attributes:
        name: What the legend says.
        x: Rows.
        y: Values above 0.
        is_computed: Not measured: drawn dashed.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    is_computed: bool = False


def draw_scaling(panels: Mapping[str, Sequence[Line]], path: Path) -> Path:
    """Log-log panels side by side, by what their vertical axis shows; lines share colours."""
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    axes: list[Axes] = list(figure.subplots(1, len(panels), squeeze=False)[0])
    names = list(dict.fromkeys(line.name for lines in panels.values() for line in lines))
    for axis, (label, lines) in zip(axes, panels.items(), strict=True):
        for line in lines:
            axis.loglog(
                line.x,
                line.y,
                "--" if line.is_computed else "o-",
                color=f"C{names.index(line.name)}",
                markersize=4,
                label=None if line.is_computed else line.name,
            )
        axis.set(xlabel="context rows", ylabel=label)
        _tidy(axis)
    handles = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    shown = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in shown], shown, loc="outside lower center", ncols=3, frameon=False
    )
    return write_whole(path, lambda partial: figure.savefig(partial, dpi=130))


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
    return write_whole(path, lambda partial: figure.savefig(partial, dpi=130))


def running_mean(values: Sequence[float], window: int = SMOOTHING) -> list[float]:
    """Mean of every value and those before it, `window` in all, fewer at the start."""
    spans = (values[max(0, i + 1 - window) : i + 1] for i in range(len(values)))
    return [sum(span) / len(span) for span in spans]


def _tidy(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
