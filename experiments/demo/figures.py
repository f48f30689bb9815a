"""The two figures of the demo."""

from pathlib import Path

import matplotlib
import pandas as pd

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from tabicl_linear.files import written_whole

SMOOTHING = 25
"""Number of logged steps in the running mean of the training loss."""
LEAST_RANGE = 0.02
"""Least range of the ROC-AUC axis. Drawn over all of it, changes of 0.0001 would look large."""


def draw_learning_curve(metrics: Path, output: Path) -> None:
    """Training and validation loss, and validation ROC-AUC, against optimiser steps."""
    table = pd.read_csv(metrics)
    figure, (loss, auc) = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    train = table.dropna(subset=["train/loss"])
    steps = {"color": "0.8", "linewidth": 0.7, "label": "training (single steps)"}
    loss.plot(train["step"], train["train/loss"], **steps)
    smooth = train["train/loss"].rolling(SMOOTHING, min_periods=1).mean()
    loss.plot(train["step"], smooth, color="C0", label="training (running mean)")
    validation = table.dropna(subset=["val/loss"])
    loss.plot(validation["step"], validation["val/loss"], "o-", color="C1", label="validation")
    loss.set(xlabel="optimiser steps", ylabel="cross-entropy", title="Loss on synthetic tables")
    loss.legend(frameon=False)
    auc.plot(validation["step"], validation["val/roc_auc"], "o-", color="C1")
    auc.set(xlabel="optimiser steps", ylabel="ROC-AUC", title="ROC-AUC on synthetic tables")
    low, high = auc.get_ylim()
    room = max(0.0, LEAST_RANGE - (high - low)) / 2
    auc.set_ylim(low - room, high + room)
    for axis in (loss, auc):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    _save(figure, output)


def draw_context_sizes(sizes: pd.DataFrame, output: Path) -> None:
    """Test accuracy against context rows, a panel for each table."""
    tables = list(dict.fromkeys(sizes["table"]))
    size = 3.1 * len(tables), 3.2
    figure, grid = plt.subplots(1, len(tables), figsize=size, squeeze=False)
    axes = grid[0]
    for axis, table in zip(axes, tables, strict=True):
        for model, rows in sizes[sizes["table"] == table].groupby("model", sort=False):
            axis.plot(rows["rows"], rows["accuracy"], "o-", markersize=4, label=model)
        axis.set_xscale("log", base=2)
        ticks = sorted(sizes.loc[sizes["table"] == table, "rows"].unique())
        axis.set_xticks(ticks, [str(tick) for tick in ticks], rotation=60)
        axis.set(title=table, xlabel="context rows")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy on held-out rows")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    _save(figure, output)


def _save(figure: plt.Figure, output: Path) -> None:
    with written_whole(output) as partial:
        figure.savefig(partial, dpi=130, format="png")
    plt.close(figure)
