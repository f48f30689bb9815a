"""Pictures for TensorBoard: one panel each, in the size at which TensorBoard shows them.

*Images* shows a picture 350 pixels wide, whatever its own width, and *Time series* in a card 320
pixels high. Both shrink larger pictures by dropping pixels, which makes labels unreadable.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tabicl_linear.analysis.figures import by_layer, figure_class, heatmap, length_axis, mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 350, 225, 100
"""Width and height of a picture in pixels, and pixels per inch."""

POINTS = 7
"""Font size of all text, in points: about 10 pixels."""

MOST_NAMED = 6
"""Most lines that are all named; if there are more, only the first and the last are."""


def write_rates_card(table: pd.DataFrame, gate: str) -> "Figure":
    """One gate over positions, a line for each layer.

    Args:
        table: From `analysis.write_rates`, of one checkpoint.
        gate: `write_rate` or `kept`.
    """
    figure, ax = _card()
    of_gate = table[table["gate"] == gate]
    middle = (of_gate["position"] + of_gate["last"]) / 2 + 1
    lines = of_gate.assign(middle=middle).pivot_table(
        index="middle", columns="layer", values="mean"
    )
    by_layer(ax, lines)
    ax.set(xscale="log", ylim=(0, None))
    _label(ax, "tokens written", gate.replace("_", " "))
    _name_layers(ax)
    return figure


def norm_card(table: pd.DataFrame, norm: str) -> "Figure":
    """One norm or rank of states by layer: a point for each head, and a line through the means.

    Args:
        table: From `analysis.state_norms`.
        norm: One of its columns.
    """
    figure, ax = _card()
    heads = table.groupby(["layer", "head"])[norm].mean().reset_index()
    ax.scatter(heads["layer"], heads[norm], c=heads["head"], cmap="viridis", s=16)
    means = heads.groupby("layer")[norm].mean()
    ax.plot(means.index, means, color="0.3", linewidth=1)
    layers = list(means.index)
    ax.set_xticks(layers[:: max(1, -(-len(layers) // 12))])
    ax.set_ylim(0, None)
    _label(ax, "layer (a point: one head)", norm.replace("_", " "))
    return figure


def drift_card(table: pd.DataFrame, *, trained: int | None) -> "Figure":
    """Cosine of states to those at one reference length, layer by length.

    Args:
        table: From `analysis.state_drift.cosines`, of one reference.
        trained: Rows of the longest table of training, drawn as a dashed line.
    """
    figure, ax = _card()
    cells = table.groupby(["layer", "length"])["cosine"].mean().unstack()
    image = heatmap(ax, cells, trained, vmin=min(0.0, float(cells.min().min())), vmax=1.0)
    bar = figure.colorbar(image, ax=ax)
    bar.ax.tick_params(labelsize=POINTS)
    bar.set_label("cosine", fontsize=POINTS)
    _label(ax, "rows of context", "layer")
    return figure


def score_card(table: pd.DataFrame, score: str, *, trained: int | None) -> "Figure":
    """One score over context lengths, mean over tasks.

    Args:
        table: Columns length and the score; a row for each task and length.
        score: Its column.
        trained: Rows of the longest table of training, drawn as a dashed line.
    """
    figure, ax = _card()
    means = table.groupby("length")[score].mean()
    ax.plot(means.index, means, marker="o", markersize=3)
    mark(ax, trained)
    length_axis(ax, list(means.index))
    _label(ax, "rows of context", score.replace("_", " "))
    return figure


def pixels(figure: "Figure") -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """The figure as an image [height width 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _card() -> "tuple[Figure, Axes]":
    figure = figure_class()(figsize=(WIDTH / DPI, HEIGHT / DPI), layout="constrained")
    return figure, figure.subplots()


def _label(ax: "Axes", x: str, y: str) -> None:
    ax.set_xlabel(x, fontsize=POINTS)
    ax.set_ylabel(y, fontsize=POINTS)
    ax.tick_params(labelsize=POINTS)


def _name_layers(ax: "Axes") -> None:
    lines, names = ax.get_legend_handles_labels()
    if len(lines) > MOST_NAMED:
        lines, names = [lines[0], lines[-1]], [names[0], names[-1]]
    if lines:
        ax.legend(lines, names, fontsize=POINTS)
