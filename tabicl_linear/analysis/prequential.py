"""A figure of how well a growing classifier predicted each piece of rows before reading it."""

from typing import TYPE_CHECKING

import pandas as pd

from tabicl_linear.analysis.figures import panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def prequential_figure(table: pd.DataFrame) -> "Figure":
    """Log-loss and accuracy over rows read: of each piece, and the mean over all rows so far.

    Args:
        table: `prequential_` of a classifier: the rows read before a piece (`rows_seen`), its own
            `rows`, and `log_loss` and `accuracy` on it.
    """
    figure, axes = panels(2)
    for ax, (column, label) in zip(
        axes, {"log_loss": "log-loss", "accuracy": "accuracy"}.items(), strict=True
    ):
        mean = (table[column] * table["rows"]).cumsum() / table["rows"].cumsum()
        ax.plot(table["rows_seen"], table[column], ".", color="C0", markersize=4, label="piece")
        ax.plot(table["rows_seen"], mean, color="C1", linewidth=1.2, label="mean so far")
        ax.set(xlabel="rows seen before", ylabel=label)
    axes[0].legend(fontsize="x-small", frameon=False)
    return figure
