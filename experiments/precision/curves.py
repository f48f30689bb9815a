"""Training losses of several runs, step by step, against those of the first."""

import pandas as pd
from matplotlib.figure import Figure

from tabicl_linear.analysis.figures import panels

SMOOTHING = 20
"""Steps in a running mean."""


def compared(losses: pd.DataFrame) -> pd.DataFrame:
    """How far every curve is from the first one, as texts.

    Args:
        losses: A column for each run and a row for each step, of the same batch in all runs.

    Returns:
        The mean over the second half of the steps, its difference from that of the first curve with
        the standard error, and the largest difference of running means.
    """
    differences = losses.sub(losses.iloc[:, 0], axis=0)
    late = differences.iloc[len(losses) // 2 :]
    texts = [f"{m:+.4f} ± {e:.4f}" for m, e in zip(late.mean(), late.sem(), strict=True)]
    smooth = differences.rolling(min(SMOOTHING, len(losses))).mean().abs().max()
    cells = {
        "": losses.columns,
        "mean loss, second half": losses.iloc[len(losses) // 2 :].mean().to_list(),
        "difference": [None, *texts[1:]],
        "furthest": [None, *smooth.to_list()[1:]],
    }
    return pd.DataFrame(cells)


def figure(losses: pd.DataFrame) -> Figure:
    """Running means of the curves over each other, and their differences from the first."""
    drawn, (left, right) = panels(2, width=4.2, height=3.2)
    smooth = losses.rolling(SMOOTHING, min_periods=1).mean()
    style = {"linewidth": 1, "xlabel": "optimiser steps"}
    smooth.plot(ax=left, ylabel=f"training loss (mean of {SMOOTHING} steps)", **style)
    difference = f"difference from {losses.columns[0]}"
    smooth.sub(smooth.iloc[:, 0], axis=0).plot(ax=right, ylabel=difference, legend=False, **style)
    return drawn
