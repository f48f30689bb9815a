"""Shared by the parts of pages: sections, rows of arms, tables of scores."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from experiments.study.readings import Tables
from tabicl_linear.report.layout import DASH, Cell, Table, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Section(NamedTuple):
    """A part of a page.

    Attributes:
        title: Its heading.
        texts: Paragraphs and tables in markdown.
        figures: Figures by the end of their file names.
    """

    title: str
    texts: Sequence[str]
    figures: "Mapping[str, Figure]"


def of_arms(tables: Tables, measure: str, arms: Sequence[str]) -> pd.DataFrame:
    """Return the rows of a measure for some arms, in the order of the arms."""
    frame = tables.frame(measure)
    return pd.concat([frame[frame["arm"] == arm] for arm in arms], ignore_index=True)


def parameters_of(tables: Tables, arm: str) -> Cell:
    """Return the number of parameters of an arm; a dash for a label that is not an arm."""
    units = tables.units[tables.units["arm"] == arm]
    return DASH if units.empty else Cell(f"{units['parameters'].iloc[0]:,}")


def seeds_of(tables: Tables, arm: str, measure: str) -> Cell:
    """Return the number of an arm's seeds with a measure; others may only have been trained."""
    frame = tables.frame(measure)
    count = frame.loc[frame["arm"] == arm, "seed"].nunique()
    return Cell(str(count)) if count else DASH


def score_table(tables: Tables, scores: pd.DataFrame, metric: str, about: str) -> str:
    """Return a metric of a summary as markdown: a row for each arm, a column for each length."""
    lengths = sorted(scores["num_rows"].unique())
    rows = []
    for arm, points in scores.groupby("arm", sort=False):
        values, seeds = points.set_index("num_rows"), points["seeds"].iloc[0]
        cells = [
            Cell(f"{values[metric][n]:.4f} ± {values[f'{metric}_interval'][n]:.4f}")
            if n in values.index
            else DASH
            for n in lengths
        ]
        rows.append([Cell(str(arm)), parameters_of(tables, str(arm)), Cell(str(seeds)), *cells])
    header = ["Arm", "Parameters", "Seeds", *(f"{n:,}" for n in lengths)]
    title = {"roc_auc": "ROC-AUC", "accuracy": "Accuracy"}[metric]
    return markdown(Table(f"{title} by rows of context. {about}", header, [rows]))
