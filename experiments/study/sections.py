"""What the parts of pages share: sections, rows of arms, tables of scores."""

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
        texts: Paragraphs and tables, markdown.
        figures: By the end of their names.
    """

    title: str
    texts: Sequence[str]
    figures: "Mapping[str, Figure]"


def of_arms(tables: Tables, measure: str, arms: Sequence[str]) -> pd.DataFrame:
    """Rows of a measure that belong to some arms, in their order."""
    frame = tables.frame(measure)
    return pd.concat([frame[frame["arm"] == arm] for arm in arms], ignore_index=True)


def parameters_of(tables: Tables, arm: str) -> Cell:
    """Parameters of an arm; a dash for what is no arm of its own."""
    units = tables.units[tables.units["arm"] == arm]
    return DASH if units.empty else Cell(f"{units['parameters'].iloc[0]:,}")


def seeds_of(tables: Tables, arm: str, measure: str) -> Cell:
    """How many seeds of an arm have a measure, of which others may have been trained alone."""
    frame = tables.frame(measure)
    count = frame.loc[frame["arm"] == arm, "seed"].nunique()
    return Cell(str(count)) if count else DASH


def score_table(tables: Tables, scores: pd.DataFrame, metric: str, about: str) -> str:
    """A metric of a summary of `lengths`: a row for each arm, a column for each length."""
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
