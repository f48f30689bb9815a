"""An inspection as one HTML page that needs nothing else: figures are part of it."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from tabicl_linear.analysis import figures
from tabicl_linear.analysis.contributions import contribution_ratio
from tabicl_linear.analysis.inspection import Inspection, Plan, trained_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;"
    "color:#222}img{max-width:100%}pre{background:#f5f5f5;padding:1em;overflow-x:auto;"
    "font-size:13px}table{border-collapse:collapse;font-size:13px}td,th{padding:2px 10px;"
    "text-align:right;border-bottom:1px solid #ddd}h2{margin-top:2em}.absent{color:#777}"
)

SECTIONS = {
    "scores": (
        "Scores by context length",
        "Mean over tasks of what the queries get, which are the same for every length. The dashed "
        "line is where training ended: a model that generalises does not turn there.",
    ),
    "drift": (
        "States as the context grows",
        "Above: cosine of the flattened states to those at the reference length, mean over heads "
        "and tasks; left of the dashed line are trained lengths. Below, by layer (dark: first): "
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


def page(inspections: Sequence[Inspection], plan: Plan, summary: Sequence[str], title: str) -> str:
    """The page.

    Args:
        inspections: Of one or two checkpoints, on the same plan.
        plan: What was looked at.
        summary: Lines to begin with.
        title: Of the page.
    """
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f"<pre>{escape(chr(10).join(summary))}</pre>",
    ]
    for name, (heading, text) in SECTIONS.items():
        tables = {one.name: one.tables[name] for one in inspections if name in one.tables}
        reasons = [f"{one.name}: {one.absent[name]}" for one in inspections if name in one.absent]
        if not tables and not reasons:
            continue
        parts.append(f"<h2>{escape(heading)}</h2>")
        parts += [f'<p class="absent">{escape(reason)}</p>' for reason in reasons]
        if tables:
            parts.append(f"<p>{escape(text)}</p>")
            trained = max((trained_rows(one.model) or 0 for one in inspections), default=0) or None
            parts += [_image(figure) for figure in _figures(name, tables, trained)]
            parts += [_numbers(name, table, label) for label, table in tables.items()]
    return "\n".join([*parts, "</body></html>\n"])


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


def _image(figure: "Figure") -> str:
    data = b64encode(figures.png(figure)).decode()
    return f'<p><img alt="" src="data:image/png;base64,{data}"></p>'


def _numbers(name: str, table: pd.DataFrame, label: str) -> str:
    """Means by layer or length, folded away."""
    if name == "drift":
        plain = table[table["form"] == "state"]
        values = plain.pivot_table(index="layer", columns="length", values="cosine")
    else:
        by = next((c for c in ("layer", "length") if c in table), "task")
        dropped = ("task", "cell", "head", "query", "position", "last", "lookback", "gate", by)
        kept = [c for c in table.columns if c not in dropped]
        keys = [by, "gate"] if "gate" in table else [by]
        values = table.groupby(keys)[kept].mean()
    body = values.to_html(float_format=lambda value: f"{value:.4g}", border=0)
    return f"<details><summary>Means: {escape(label)}</summary>{body}</details>"
