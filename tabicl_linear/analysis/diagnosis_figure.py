"""A figure of what `TabICLLinearClassifier.diagnose` finds."""

from typing import TYPE_CHECKING

import pandas as pd

from tabicl_linear.analysis.figures import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {
    "norm": "Frobenius norm",
    "effective_rank": "effective rank",
    "write_rate": "mean write rate",
    "kept": "kept per token",
    "cosine_half": "cosine, half to all rows",
    "order_spread": "spread over row orders",
}
"""Titles of the measures, in the order of the panels."""


def diagnosis_figure(table: pd.DataFrame) -> "Figure":
    """A panel for each measure: over layers, a point for each head and member, and their mean.

    The spread over row orders, which belongs to members as a whole, is drawn over members.

    Args:
        table: From `TabICLLinearClassifier.diagnose`.

    Raises:
        ConfigError: Matplotlib is not installed.
    """
    measures = [name for name in LABELS if name in set(table["measure"])]
    figure, axes = panels(len(measures))
    for measure, ax in zip(measures, axes, strict=True):
        rows = table[table["measure"] == measure]
        over = "member" if rows["layer"].isna().all() else "layer"
        x, mean = rows[over].astype(int), rows.groupby(over)["value"].mean()
        ax.plot(x, rows["value"], ".", color="C0", markersize=3, alpha=0.5)
        ax.plot(mean.index.astype(int), mean, color="C1", linewidth=1.2)
        ax.set(xlabel=over, title=LABELS[measure], ylim=(min(0.0, rows["value"].min()), None))
        ax.locator_params(axis="x", integer=True)
    return figure
