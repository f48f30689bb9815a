"""An inspection as one self-contained HTML page, with its figures embedded."""

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tabicl_linear.analysis import figures
from tabicl_linear.analysis.contributions import contribution_ratio
from tabicl_linear.analysis.inspection import Inspection
from tabicl_linear.pages import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTIONS = {
    "scores": (
        "Scores by context length",
        "Mean over tasks of what the queries get, which are the same for every length. The dashed "
        "line is where training ended: a model that generalises does not turn there.",
    ),
    "drift": (
        "States as the context grows",
        "Above: cosine of the flattened states to those at the reference length, mean over heads "
        "and tasks; left of the dashed line are trained lengths. Below, by layer: "
        "Frobenius norm, effective rank, cosine to the length before, and overlap of the leading "
        "eight key directions with those at the reference.",
    ),
    "write_rates": (
        "Write rates and gates",
        "How strongly a token is written (solid) and how much of the state it keeps (dashed) by "
        "its position in a context of the reference length, with 95 % intervals over tasks.",
    ),
    "contribution": (
        "What is left of each token",
        "C_s = beta_s prod (1 - beta_t) alpha_t: weight of a token in the final state if all keys "
        "were alike, a lower bound otherwise. Lookback 0 is the last token. With two checkpoints, "
        "red is where the first keeps more.",
    ),
    "ridge_target": (
        "States and their ridge targets",
        "Left: cosine of a layer's state to the ridge regression from its own keys to its own "
        "values (Equation 3, lambda 0.01). Right: share of the values that state and ridge miss.",
    ),
    "order_sensitivity": (
        "Order of rows",
        "Distance between predictions after the same rows in eight orders.",
    ),
}


def page(inspections: Sequence[Inspection], summary: Sequence[str], title: str) -> str:
    """The HTML of the page.

    Args:
        inspections: Inspections of one or two checkpoints, on the same plan.
        summary: Lines at the top of the page.
        title: Title of the page.
    """
    trained = max((one.model.longest_context or 0 for one in inspections), default=0) or None
    sections = []
    for name, (heading, text) in SECTIONS.items():
        tables = {one.name: one.tables[name] for one in inspections if name in one.tables}
        absent = [f"{one.name}: {one.absent[name]}" for one in inspections if name in one.absent]
        if not tables and not absent:
            continue
        pictures = _figures(name, tables, trained) if tables else []
        sections.append(
            {
                "heading": heading,
                "text": text,
                "absent": absent,
                "figures": [b64encode(figures.png(figure)).decode() for figure in pictures],
                "means": [(label, _means(name, table)) for label, table in tables.items()],
            }
        )
    return render("inspect", title=title, summary="\n".join(summary), sections=sections)


def _figures(name: str, tables: figures.Tables, trained: int | None) -> "list[Figure]":
    if name == "scores":
        return [figures.scores_figure(tables, trained=trained)]
    if name == "drift":
        both = figures.drift_figure, figures.state_curves_figure
        return [draw(tables, trained=trained) for draw in both]
    if name == "write_rates":
        return [figures.write_rates_figure(tables)]
    if name == "contribution":
        first, *others = tables.values()
        ratio = contribution_ratio(first, others[0]) if others else None
        return [figures.contribution_figure(tables, ratio)]
    if name == "ridge_target":
        return [figures.ridge_figure(tables)]
    return [figures.order_figure(tables)]


def _means(name: str, table: pd.DataFrame) -> str:
    """Means by layer, length or task, as an HTML table."""
    if name == "drift":
        plain = table[table["form"] == "state"]
        values = plain.pivot_table(index="layer", columns="length", values="cosine")
    else:
        axis = next((c for c in ("layer", "length") if c in table), "task")
        other_keys = ("task", "cell", "head", "query", "position", "last", "lookback", "gate", axis)
        columns = [c for c in table.columns if c not in other_keys]
        keys = [axis, "gate"] if "gate" in table else [axis]
        values = table.groupby(keys)[columns].mean()
    html: str = values.to_html(float_format=lambda value: f"{value:.4g}", border=0)
    return html
