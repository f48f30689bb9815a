"""Scores against rows of context, in the style of the paper's figure 2."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tabicl_linear.files import written_whole

TITLES = {"normalised_roc_auc": "normalised ROC-AUC", "roc_auc": "ROC-AUC"}
LEAST_ROOM = 0.05
"""Least part of the axis above and below the means where intervals are shown."""


def draw(summary: pd.DataFrame, trained: Mapping[str, int], path: Path) -> None:
    """Draw a panel each for normalised (if defined) and plain ROC-AUC, intervals as shades.

    Every model has one colour: its readings in blocks are dashed, its oracle, read at one length
    only, is a horizontal line, and a dotted line marks the longest context that it was trained on.

    Args:
        summary: From `summarise`.
        trained: Longest trained context in rows by model, where known.
        path: PNG file to write.
    """
    # Normalised scores are not defined where nothing varies, as at one length of one model.
    metrics = [name for name in TITLES if name in summary and summary[name].notna().any()]
    metrics = metrics or ["roc_auc"]
    figure = Figure(figsize=(5.2 * len(metrics), 4.2), layout="constrained")
    axes = figure.subplots(1, len(metrics), squeeze=False)
    for axis, metric in zip(axes[0], metrics, strict=True):
        _panel(axis, summary, metric, trained)
        axis.set(xlabel="rows of context", title=TITLES[metric])
        _follow_means(axis, summary[metric])
    axes[0, 0].legend(frameon=False, fontsize=8)
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=130, format="png")


def _panel(axis: Axes, summary: pd.DataFrame, metric: str, trained: Mapping[str, int]) -> None:
    lengths = sorted(summary["num_rows"].unique())
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [_short(length) for length in lengths], rotation=45)
    axis.minorticks_off()
    colours: dict[str, str] = {}
    for label in summary["model"].unique():
        name = label.partition(" in blocks of ")[0].removesuffix(" oracle")
        colour = colours.setdefault(name, f"C{len(colours)}")
        points = summary[summary["model"] == label]
        x, y = points["num_rows"], points[metric]
        half = points[f"{metric}_interval"].fillna(0.0)  # NaN if there is only one dataset
        if label.endswith(" oracle") and len(points) == 1:
            axis.axhline(y.iloc[0], color=colour, linestyle="-.", label=label)
            axis.axhspan((y - half).iloc[0], (y + half).iloc[0], color=colour, alpha=0.08, lw=0)
            continue
        style = "-" if label == name else "--"
        axis.plot(x, y, color=colour, linestyle=style, marker="o", markersize=3, label=label)
        axis.fill_between(x, y - half, y + half, color=colour, alpha=0.15, linewidth=0)
    _mark_trained(axis, {name: trained[name] for name in colours if name in trained}, colours)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def _follow_means(axis: Axes, means: "pd.Series[float]") -> None:
    """Cut intervals that are much wider than the means differ, as of two datasets, and say so."""
    if means.isna().all():
        return
    room = max(float(means.max() - means.min()), LEAST_ROOM)
    lowest, highest = axis.get_ylim()
    low, high = max(lowest, means.min() - room), min(highest, means.max() + room)
    if (low, high) != (lowest, highest):
        axis.set(ylim=(low, high), ylabel="wide intervals are cut")


def _mark_trained(axis: Axes, trained: Mapping[str, int], colours: Mapping[str, str]) -> None:
    for length in sorted(set(trained.values())):
        names = [name for name, rows in trained.items() if rows == length]
        # Grey if several models share the length.
        colour = colours[names[0]] if len(names) == 1 and len(colours) > 1 else "grey"
        axis.axvline(length, color=colour, linestyle=":", label=f"trained up to {length:,} rows")


def _short(length: int) -> str:
    return f"{length // 1000}k" if length >= 1000 and length % 1000 == 0 else str(length)
