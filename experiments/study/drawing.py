"""Figures of the study, in the style of the paper's."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tabicl_linear.analysis.figures import by_layer, panels
from tabicl_linear.report.benchmark_figures import styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"roc_auc": "ROC-AUC", "normalised_roc_auc": "normalised ROC-AUC"}


def svg(figure: "Figure") -> str:
    """Return a figure as SVG; the text is the same whenever the figure is."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "study", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def curves(summary: pd.DataFrame, trained: int) -> "Figure":
    """Draw scores against rows of context, a panel for each score; shading shows 95 % intervals.

    Args:
        summary: Columns arm, num_rows, and for each score of `TITLES` its mean, and half the width
            of its interval in a column with the suffix `_interval`.
        trained: Rows of a training table, marked by a dashed line.
    """
    shown = [name for name in TITLES if name in summary]
    figure, axes = panels(len(shown), width=4.6, height=3.6)
    look = styles(list(summary["arm"].unique()))
    for name, ax in zip(shown, axes, strict=True):
        for arm, points in summary.groupby("arm", sort=False):
            x, y = points["num_rows"], points[name]
            half = points[f"{name}_interval"].fillna(0.0)
            ax.plot(x, y, marker="o", markersize=3, label=arm, **look[arm])
            ax.fill_between(x, y - half, y + half, color=look[arm]["color"], alpha=0.12, lw=0)
        ax.set(title=TITLES[name], xlabel="rows of context")
        _lengths(ax, sorted(summary["num_rows"].unique()), trained)
    figure.legend(*axes[0].get_legend_handles_labels(), **BELOW)
    return figure


def by_budget(scores: pd.DataFrame, trained: int) -> "Figure":
    """Draw ROC-AUC against rows of context: a panel for each arm, a line for each number of steps.

    No intervals: all lines are of the same datasets, and only their differences have narrow ones.

    Args:
        scores: Columns arm, steps, num_rows, roc_auc.
        trained: Rows of a training table, marked by a dashed line.
    """
    arms = scores["arm"].unique()
    figure, axes = panels(len(arms), width=3.0, height=2.8)
    look = styles([f"{steps:,} steps" for steps in sorted(scores["steps"].unique())])
    lines = {}
    for arm, ax in zip(arms, axes, strict=True):
        for steps, points in scores[scores["arm"] == arm].groupby("steps"):
            label = f"{steps:,} steps"
            (lines[label],) = ax.plot(
                points["num_rows"], points["roc_auc"], marker="o", markersize=3, **look[label]
            )
        ax.set(title=arm, xlabel="rows of context")
        ax.sharey(axes[0])
        _lengths(ax, sorted(scores["num_rows"].unique()), trained)
    axes[0].set(ylabel="ROC-AUC")
    figure.legend([lines[label] for label in look], list(look), **BELOW)
    return figure


BELOW = {"loc": "outside lower center", "ncols": 3, "frameon": False, "fontsize": "small"}


def norms(tables: Mapping[str, pd.DataFrame], trained: int) -> "Figure":
    """Draw Frobenius norms of states against rows of context: a panel per arm, a line per layer.

    Args:
        tables: For each arm a table with columns layer, num_rows, value.
        trained: Rows of a training table.
    """
    figure, axes = panels(len(tables), width=3.2, height=2.6)
    for (arm, table), ax in zip(tables.items(), axes, strict=True):
        lines = table.groupby(["layer", "num_rows"])["value"].mean().unstack("layer")
        by_layer(ax, lines)
        ax.set(title=arm, yscale="log")
        _lengths(ax, list(lines.index), trained)
    figure.legend(*axes[0].get_legend_handles_labels(), **BELOW)
    figure.supylabel("Frobenius norm of the state", fontsize="small")
    return figure


def costs(table: pd.DataFrame) -> "Figure":
    """Draw seconds to fit and to predict and bytes of the state against rows, on log axes.

    Args:
        table: Columns arm, num_rows, fit_seconds, predict_seconds, state_bytes.
    """
    columns = ("fit_seconds", "predict_seconds", "state_bytes")
    figure, axes = panels(len(columns), width=3.4, height=3.0)
    look = styles(list(table["arm"].unique()))
    for column, ax in zip(columns, axes, strict=True):
        for arm, points in table.groupby("arm", sort=False):
            line = points.groupby("num_rows")[column].mean()
            ax.plot(line.index, line, marker="o", markersize=3, label=arm, **look[arm])
        ax.set(title=column.replace("_", " "), xlabel="rows of context", yscale="log")
        _lengths(ax, sorted(table["num_rows"].unique()), None)
    figure.legend(*axes[0].get_legend_handles_labels(), **BELOW)
    return figure


def _lengths(ax: "Axes", lengths: Sequence[int], trained: int | None) -> None:
    ax.set_xscale("log")
    ax.minorticks_off()
    ax.set_xticks(lengths, [f"{n:,}" for n in lengths], rotation=45, fontsize="x-small")
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    if trained is not None:
        ax.axvline(trained, color="0.4", linestyle="--", linewidth=0.8)
