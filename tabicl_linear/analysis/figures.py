"""Figures of the tables in this package. Matplotlib is imported when the first one is drawn.

They are drawn without pyplot, so no global figure, style or backend is changed.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tabicl_linear.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Tables = Mapping[str, pd.DataFrame]
"""The table of each checkpoint, by its name. Several are drawn side by side."""

COLUMNS = 4
"""Most panels in a row."""

SCORES = {"loss": "log-loss (nats)", "accuracy": "accuracy", "roc_auc": "ROC-AUC"}
"""Titles of the panels of scores, by column."""

STATES = {
    "frobenius": "Frobenius norm",
    "effective_rank": "effective rank",
    "cosine_to_previous": "cosine to the length before",
    "key_overlap": "overlap of key directions",
}
"""Titles of the panels of states, by column."""

LOWEST_LOG10 = -8.0
"""log10 of the smallest contribution with a colour of its own; smaller ones look the same."""


def figure_class() -> "type[Figure]":
    """Matplotlib's class of figures.

    Raises:
        ConfigError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Figures need matplotlib, which is not installed: pip install 'tabicl-linear[train]'."
        ) from error

    return Figure


def panels(number: int, *, width: float = 3.0, height: float = 2.3) -> "tuple[Figure, list[Axes]]":
    """A figure with `number` panels, in rows of at most four; sizes are inches per panel.

    Raises:
        ConfigError: Matplotlib is not installed.
    """
    across = min(number, COLUMNS)
    down = -(-number // across)
    figure = figure_class()(
        figsize=(width * across + 0.6, height * down + 0.4), layout="constrained"
    )
    axes = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for spare in axes[number:]:
        spare.remove()
    return figure, axes[:number]


def write_rates_figure(
    tables: Tables, *, trained: int | None = None, gate: str | None = None
) -> "Figure":
    """Write rates and gates over positions: a panel for each layer, a line for each checkpoint.

    Args:
        tables: From `write_rates`.
        trained: Where training ended, drawn as a dashed line.
        gate: Draw only `write_rate` or `kept`; if None, both, with gates dashed.
    """
    layers = sorted(set().union(*(table["layer"] for table in tables.values())))
    figure, axes = panels(len(layers))
    for layer, ax in zip(layers, axes, strict=True):
        for colour, (name, table) in enumerate(tables.items()):
            of_layer = table[(table["layer"] == layer) & (table["gate"] == (gate or table["gate"]))]
            for which, line in of_layer.groupby("gate"):
                x = (line["position"] + line["last"]) / 2 + 1
                kind = "" if gate else which.replace("_", " ")
                label = f"{name} {kind}".strip()
                dashes = "--" if which == "kept" else "-"
                ax.plot(x, line["mean"], dashes, color=f"C{colour}", label=label, linewidth=1.2)
                ax.fill_between(x, line["low"], line["high"], color=f"C{colour}", alpha=0.2)
        ax.set(title=f"layer {layer}", xscale="log", ylim=(0, None))
        mark(ax, trained)
    both = "effective write rate; gate dashed"
    names = {"write_rate": "effective write rate", "kept": "gate"}
    _label(figure, "tokens written", names[gate] if gate else both)
    _legend_above(figure, axes)
    return figure


def drift_figure(tables: Tables, *, trained: int | None = None) -> "Figure":
    """Cosine to the reference length, layer by length: a heatmap for each checkpoint.

    Args:
        tables: From `drift` or `cosines`.
        trained: Where training ended, drawn as a dashed line.
    """
    figure, axes = panels(len(tables), width=4.2, height=3.0)
    every = [
        table.groupby(["layer", "length"])["cosine"].mean().unstack() for table in tables.values()
    ]
    # All share one scale, as there is one colour bar. It does not start at 0, where states that
    # turn only a little would all look the same.
    least = min(float(cells.min().min()) for cells in every)
    lowest = max(-1.0, min(0.9, np.floor(10 * least) / 10))
    for name, cells, ax in zip(tables, every, axes, strict=True):
        image = heatmap(ax, cells, trained, vmin=lowest, vmax=1.0)
        ax.set(title=name, xlabel="rows of context", ylabel="layer")
    figure.colorbar(image, ax=axes, label="cosine")
    return figure


def state_curves_figure(tables: Tables, *, trained: int | None = None) -> "Figure":
    """Norms, ranks and directions of states over context lengths: a line for each layer.

    Args:
        tables: From `drift`; one row of panels for each checkpoint.
        trained: Where training ended, drawn as a dashed line.
    """
    figure, axes = panels(len(STATES) * len(tables))
    for row, (name, table) in enumerate(tables.items()):
        plain = table[table["form"] == "state"]
        for (column, title), ax in zip(STATES.items(), axes[row * len(STATES) :], strict=False):
            lines = plain.groupby(["layer", "length"])[column].mean().unstack("layer")
            by_layer(ax, lines)
            ax.set_title(title if len(tables) == 1 else f"{name}: {title}", fontsize="medium")
            length_axis(ax, list(lines.index))
            mark(ax, trained)
    _label(figure, "rows of context", "")
    _legend_above(figure, axes, columns=8)
    return figure


def contribution_figure(tables: Tables, ratio: pd.DataFrame | None = None) -> "Figure":
    """log10 of contributions, layer by lookback; for two checkpoints, also of their ratio.

    Args:
        tables: From `contribution`.
        ratio: From `contribution_ratio`: red where its first checkpoint keeps more.
    """
    figure, axes = panels(len(tables) + (ratio is not None), width=4.0, height=3.0)
    for (name, table), ax in zip(tables.items(), axes, strict=False):
        cells = table.pivot_table(index="layer", columns="lookback", values="log10_contribution")
        image = heatmap(ax, cells.clip(lower=LOWEST_LOG10), vmin=LOWEST_LOG10, vmax=0.0)
        ax.set(title=name, xlabel="lookback (tokens)", ylabel="layer")
        figure.colorbar(image, ax=ax, label="log10 C")
    if ratio is not None:
        cells = ratio.pivot_table(index="layer", columns="lookback", values="log10_ratio")
        image = heatmap(axes[-1], cells.clip(-3, 3), cmap="RdBu_r", vmin=-3.0, vmax=3.0)
        axes[-1].set(title=" / ".join(tables), xlabel="lookback (tokens)", ylabel="layer")
        figure.colorbar(image, ax=axes[-1], label="log10 ratio")
    return figure


def ridge_figure(tables: Tables) -> "Figure":
    """Cosine of states to their ridge targets and both errors, by layer.

    Args:
        tables: From `ridge_target`.
    """
    figure, (left, right) = panels(2, width=4.0, height=2.8)
    from matplotlib.ticker import MaxNLocator

    for colour, (name, table) in enumerate(tables.items()):
        means = table.groupby("layer")[["cosine", "error", "ridge_error"]].mean()
        style: dict[str, Any] = {"color": f"C{colour}", "marker": "o", "markersize": 3}
        left.plot(means.index, means["cosine"], label=name, **style)
        right.plot(means.index, means["error"], label=f"{name} state".strip(), **style)
        label = f"{name} ridge".strip()
        right.plot(means.index, means["ridge_error"], label=label, linestyle="--", **style)
    left.set(xlabel="layer", ylabel="cosine to the ridge solution")
    for ax in (left, right):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))  # no layer is the 1.5th
    right.set(xlabel="layer", ylabel="share of values missed", ylim=(0, None))
    _legend(right)
    return figure


def order_figure(tables: Tables) -> "Figure":
    """Share of queries whose predictions move at most a distance when rows are reordered.

    Args:
        tables: From `order_sensitivity`.
    """
    figure, (ax,) = panels(1, width=4.2, height=2.8)
    for name, table in tables.items():
        x = np.sort(table["total_variation"])
        ax.step(x, np.arange(1, len(x) + 1) / len(x), where="post", label=name)
    ax.set(xlabel="total variation between orders", ylabel="share of queries", ylim=(0, 1.02))
    _legend(ax)
    return figure


def scores_figure(tables: Tables, *, trained: int | None = None) -> "Figure":
    """Loss, accuracy and ROC-AUC over context lengths: a line for each checkpoint.

    Args:
        tables: Columns length, loss, accuracy, roc_auc; a row for each task and length.
        trained: Where training ended, drawn as a dashed line.
    """
    figure, axes = panels(3, width=3.4, height=2.6)
    for (name, title), ax in zip(SCORES.items(), axes, strict=True):
        for label, table in tables.items():
            line = table.groupby("length")[name].mean()
            ax.plot(line.index, line, marker="o", markersize=3, label=label)
        ax.set(title=title)
        length_axis(ax, sorted(set().union(*(table["length"] for table in tables.values()))))
        mark(ax, trained)
    _label(figure, "rows of context", "")
    _legend(axes[0])
    return figure


def by_layer(ax: "Axes", lines: pd.DataFrame) -> None:
    """Draw every column as a line, coloured from the first layer to the last."""
    import matplotlib

    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, max(2, lines.shape[1])))
    for colour, layer in zip(colours, lines.columns, strict=False):
        ax.plot(lines.index, lines[layer], color=colour, linewidth=1.2, label=f"layer {layer}")


def heatmap(ax: "Axes", cells: pd.DataFrame, trained: int | None = None, **style: Any) -> Any:
    """Draw a table as cells of equal size, with at most eight column labels.

    A dashed line comes after the columns up to `trained`.
    """
    image = ax.imshow(cells.to_numpy(), aspect="auto", interpolation="nearest", **style)
    step = max(1, -(-cells.shape[1] // 8))
    ax.set_xticks(range(0, cells.shape[1], step), [f"{c:,}" for c in cells.columns[::step]])
    ax.tick_params(axis="x", labelsize="x-small", rotation=45)
    every = max(1, -(-cells.shape[0] // 12))
    ax.set_yticks(range(0, cells.shape[0], every), [str(i) for i in cells.index[::every]])
    if trained is not None:
        inside = int((cells.columns <= trained).sum())
        ax.axvline(inside - 0.5, color="white", linestyle="--", linewidth=1)
    return image


def png(figure: "Figure") -> bytes:
    """The figure as a PNG file."""
    from io import BytesIO

    file = BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def mark(ax: "Axes", trained: int | None) -> None:
    """Draw a dashed line where training ended."""
    if trained is not None:
        ax.axvline(trained, color="0.5", linestyle="--", linewidth=0.8)


def length_axis(ax: "Axes", lengths: Sequence[int]) -> None:
    """Make the x axis logarithmic, with ticks at the lengths only, as others would overlap."""
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xticks(lengths, [f"{n:,}" for n in lengths], rotation=45, fontsize="x-small")


def _label(figure: "Figure", x: str, y: str) -> None:
    figure.supxlabel(x, fontsize="small")
    figure.supylabel(y, fontsize="small")


def _legend_above(figure: "Figure", axes: "Sequence[Axes]", *, columns: int = 3) -> None:
    """Add one legend for all panels above them, in which each label occurs once."""
    handles = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    # An empty label means that there is only one line, which needs no legend.
    if any(handles):
        figure.legend(
            handles.values(),
            handles,
            loc="outside upper center",
            ncols=columns,
            fontsize="small",
            frameon=False,
        )


def _legend(ax: "Axes") -> None:
    if any(ax.get_legend_handles_labels()[1]):
        ax.legend(fontsize="x-small")
