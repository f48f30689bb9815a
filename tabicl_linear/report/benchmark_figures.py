"""The figures of a report, as SVG."""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter
from scikit_posthocs import critical_difference_diagram
from scipy.special import softmax

from tabicl_linear.report.comparison import ALPHA, Comparison
from tabicl_linear.report.layout import signed
from tabicl_linear.report.metric_order import Metric

BANDWIDTH = 0.1
"""Width of the Gaussian kernel that smooths ranks, in decades of rows (figure 6 of the paper)."""
REACH = 3
"""No smoothed rank is drawn farther than this many bandwidths from the nearest table."""

# Okabe and Ito's colours, which colour-blind people can tell apart, with grey instead of yellow,
# which is hard to read on white.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#E69F00", "#56B4E9", "#000000", "#8C8C8C"),
)
LINES = ("-", "--", ":", "-.")
PANELS, LETTERS = 6, 22
"""Most panels in a row of a figure of differences, and most letters in a line of their titles."""
Styles = dict[str, dict[str, Any]]
"""Colour and line style of each model, by name."""
BETTER, WORSE = "#0072B2", "#D55E00"


def styles(models: Sequence[str]) -> Styles:
    """Colour and line of each model, the same in all figures."""
    return {
        model: {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": LINES[i // len(COLOURS) % len(LINES)],
        }
        for i, model in enumerate(models)
    }


def critical_difference(comparison: Comparison, look: Styles) -> str:
    """A critical-difference diagram: mean ranks on a line; bars join models without differences."""
    count = len(comparison.ranks)
    with _plain_text():
        figure = Figure(figsize=(8, 1.3 + 0.3 * count), layout="constrained")
        axes = figure.subplots()
        critical_difference_diagram(
            comparison.ranks,
            comparison.adjusted().gt(ALPHA).astype(float),
            ax=axes,
            label_fmt_left="{label}  {rank:.2f}",
            label_fmt_right="{rank:.2f}  {label}",
            color_palette={name: look[name]["color"] for name in comparison.ranks.index},
            text_h_margin=0.02 * count,
            crossbar_props={"marker": "o", "markersize": 4},
        )
        axes.set_title("mean rank (1 is best)", fontsize="medium", pad=14)
        return _svg(figure)


def smoothed_ranks(rows: np.ndarray, ranks: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Ranks as a function of rows, by a Gaussian kernel in log10(rows).

    Args:
        rows: Rows of each table, `[tables]`.
        ranks: `[tables, models]`.
        at: Numbers of rows at which to smooth, `[points]`.

    Returns:
        Weighted means of the ranks, `[points, models]`; NaN farther than `REACH` bandwidths from
        every table, where there is nothing to average.
    """
    distances = (np.log10(at)[:, None] - np.log10(rows)) / BANDWIDTH
    # The kernel weights are a softmax of logarithms: computed directly, they would all underflow
    # far from every table.
    smoothed = softmax(-(distances**2) / 2, axis=1) @ ranks
    smoothed[np.abs(distances).min(axis=1) > REACH] = np.nan
    return smoothed


def rank_by_rows(rows: pd.Series, ranks: pd.DataFrame, look: Styles) -> str:
    """Smoothed rank of each model against rows; ticks at the bottom mark the tables."""
    at = np.geomspace(rows.min(), rows.max(), 400)
    curves = smoothed_ranks(rows.to_numpy(float), ranks.to_numpy(), at)
    with _plain_text():
        figure = Figure(figsize=(8, max(4, 0.6 + 0.25 * ranks.shape[1])), layout="constrained")
        axes = figure.subplots()
        for model, curve in zip(ranks, curves.T, strict=True):
            axes.plot(at, curve, label=model, **look[model])
        axes.plot(
            rows,
            np.zeros(len(rows)),
            "|",
            color="0.3",
            transform=axes.get_xaxis_transform(),
            markersize=12,
            clip_on=False,
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.invert_yaxis()
        axes.set(xlabel="rows of the table", ylabel="rank (1 is best)")
        _bare(axes)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        return _svg(figure)


def differences(scores: pd.DataFrame, reference: str, metric: Metric) -> str:
    """Each model minus the reference, table by table, with a panel for each model.

    Tables are in the order of their mean difference, with those that suit the reference best at the
    top. A bar that is far longer than the others is cut and labelled with its length, so that the
    others stay visible.
    """
    others = [model for model in scores if model != reference]
    gaps = scores[others].sub(scores[reference], axis="index")
    better = gaps if metric.higher_is_better else -gaps
    order = better.mean(axis="columns").sort_values(ascending=False, kind="stable").index
    gaps, better = gaps.loc[order], better.loc[order]
    down = -(-len(others) // PANELS)
    across = -(-len(others) // down)
    reach = _reach(gaps.to_numpy())
    with _plain_text():
        size = (2.4 + 1.9 * across, 0.5 + down * (0.8 + 0.2 * len(gaps)))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(down, across, sharey=True, sharex=True, squeeze=False).flat
        for axes, model in zip(panels, others, strict=False):
            _gains(axes, gaps[model], better[model], reach)
        for axes in panels[len(others) :]:
            axes.set_axis_off()
        figure.supxlabel(f"{metric.title} minus that of {reference}", fontsize="medium")
        return _svg(figure)


def _reach(gaps: np.ndarray) -> float:
    """The length beyond which bars are cut."""
    sizes = np.abs(gaps)
    most = 1.5 * float(np.quantile(sizes, 0.95))
    return most if sizes.max() > 2 * most > 0 else float(sizes.max())


def _gains(axes: Axes, gaps: pd.Series, better: pd.Series, reach: float) -> None:
    """Draw a bar for each table, and how often the model is better and worse as the title."""
    lengths = gaps.clip(-reach, reach)
    axes.barh(gaps.index, lengths, color=np.where(better > 0, BETTER, WORSE), height=0.7)
    for table, gap in gaps[gaps.abs() > reach].items():
        axes.annotate(
            signed(gap, 2),
            (np.sign(gap) * reach, table),
            xytext=(-2 * np.sign(gap), 0),
            textcoords="offset points",
            ha="right" if gap > 0 else "left",
            va="center_baseline",
            fontsize="x-small",
            color="white",
        )
    axes.axvline(0, color="0.3", linewidth=0.8)
    name, record = str(gaps.name), f"{(better > 0).sum()} : {(better < 0).sum()}"
    fitting = [name[i : i + LETTERS] for i in range(0, len(name), LETTERS)]
    axes.set_title("\n".join([*fitting, record]), fontsize="small")
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(labelsize="small", labelbottom=True)
    axes.tick_params(axis="y", length=0)
    axes.margins(y=0.01)
    _bare(axes)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)


def _plain_text() -> AbstractContextManager[None]:
    """Settings under which dollar signs in names are plain text, and equal figures equal files."""
    return mpl.rc_context({"text.parse_math": False, "svg.hashsalt": "report"})


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
