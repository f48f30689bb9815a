"""What tables have in common on which a model is far behind the best baseline."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from tabicl_linear.evaluation.benchmarks import Benchmark
from tabicl_linear.report.comparison import ALPHA, holm
from tabicl_linear.report.layout import DASH, Cell, Table, number, p_value, signed
from tabicl_linear.report.report_tables import Scored

METRIC = "roc_auc"
WEAKEST = 5
FEWEST_TABLES = 4
"""For a rank correlation."""
LINEAR, TREES = "logistic_regression", "random_forest"
"""The lead of the second over the first says how far a table is from being linear."""


class Property(NamedTuple):
    """A property of tables.

    Attributes:
        title: Heading of its column.
        larger: Said of tables that have more of it.
        digits: Decimals.
    """

    title: str
    larger: str
    digits: int = 0


PROPERTIES = {
    "rows": Property("rows", "with more rows"),
    "columns": Property("columns", "with more columns"),
    "classes": Property("classes", "with more classes"),
    "categorical": Property("categorical columns", "with a larger share of categories", 2),
    "missing": Property("missing cells", "with a larger share of missing cells", 2),
    "majority": Property("largest class", "whose largest class is larger", 2),
    "nonlinear": Property("lead of trees", "on which trees are further ahead of a linear model", 4),
}


def properties(benchmark: Benchmark, names: Sequence[str]) -> pd.DataFrame:
    """Shares of categorical columns, missing cells and the largest class, of tables as evaluated.

    Raises:
        DataError: A table that cannot be read.
    """
    rows = {}
    for source in benchmark.sources:
        if source.name in names:
            table = benchmark.table(source)
            rows[source.name] = {
                "categorical": len(set(table.categorical) & set(table.x)) / table.x.shape[1],
                "missing": float(table.x.isna().to_numpy().mean()),
                "majority": np.unique(table.y, return_counts=True)[1].max() / len(table.y),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def gaps(
    scored: Sequence[Scored],
    benchmarks: Sequence[Benchmark],
    *,
    model: str,
    baselines: Sequence[str],
) -> pd.DataFrame:
    """Each table's ROC-AUC of a model minus that of the best baseline, and its properties.

    Args:
        scored: Benchmarks with scores.
        benchmarks: All benchmarks, for their tables.
        model: Name of the model.
        baselines: Names of the baselines.

    Returns:
        A row for each table that all models of its benchmark have, furthest behind first, with the
        columns `benchmark`, `model` (its score), `best` (that of the best baseline), `baseline`
        (its name), `gap` and those of `PROPERTIES`, of which `nonlinear` is NaN where one of its
        two baselines was not scored. Empty where the model or all baselines were not scored.
    """
    parts = []
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    for one in scored:
        here = [name for name in baselines if name in one.coverage.models]
        if model not in one.coverage.models or not here or not one.coverage.common:
            continue
        scores = one.coverage.shared(METRIC)
        both = {LINEAR, TREES} <= set(here)
        columns = {
            "benchmark": one.coverage.benchmark,
            "model": scores[model],
            "best": scores[here].max(axis="columns"),
            "baseline": scores[here].idxmax(axis="columns"),
            "nonlinear": scores[TREES] - scores[LINEAR] if both else np.nan,
        }
        about = one.coverage.datasets[["rows", "columns", "classes"]]
        drawn = properties(by_name[one.coverage.benchmark], one.coverage.common)
        parts.append(pd.DataFrame(columns, index=scores.index).join(about).join(drawn))
    if not parts:
        return pd.DataFrame()
    together = pd.concat(parts)
    return together.assign(gap=together["model"] - together["best"]).sort_values("gap")


def correlations(gaps: pd.DataFrame) -> pd.DataFrame:
    """Spearman's correlation of the gap with every property that differs between tables.

    Returns:
        A row for each property, with `rho`, two-sided `p` and `adjusted` (Holm); none for fewer
        than `FEWEST_TABLES` tables.
    """
    rows = {}
    for name in PROPERTIES if len(gaps) >= FEWEST_TABLES else ():
        values = gaps[name].astype(float)
        if values.notna().all() and values.nunique() > 1 and gaps["gap"].nunique() > 1:
            result = stats.spearmanr(values, gaps["gap"])
            rows[name] = {"rho": float(result.statistic), "p": float(result.pvalue)}
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["rho", "p"])
    return frame.assign(adjusted=holm(frame["p"].to_list()) if len(frame) else [])


def correlations_table(rho: pd.DataFrame, num_tables: int) -> Table:
    """The correlations, as a table."""
    rows = [
        [
            Cell(PROPERTIES[str(name)].title),
            number(row.rho, 2),
            p_value(row.p)._replace(mark=""),
            p_value(row.adjusted),
        ]
        for name, row in rho.iterrows()
    ]
    return Table(
        f"Spearman's rank correlation of the gap with properties of {num_tables} tables. Negative: "
        "further behind where there is more of it. Adjusted by Holm's method; bold: at most 0.05. "
        "The lead of trees is computed from scores that may also enter the gap, so the two are "
        "slightly related by chance alone.",
        ["Property", "correlation", "p", "adjusted p"],
        [rows],
    )


def weakest_table(gaps: pd.DataFrame, model: str) -> Table:
    """The tables on which the model is furthest behind, with their properties."""
    rows = []
    for name, row in gaps.head(WEAKEST).iterrows():
        scores = [number(row[key]) for key in ("model", "best")]
        about = [
            DASH if pd.isna(row[key]) else number(float(row[key]), each.digits)
            for key, each in PROPERTIES.items()
        ]
        gap = Cell(signed(row.gap), row.gap)
        rows.append([Cell(str(name)), Cell(row.baseline), *scores, gap, *about])
    titles = [each.title for each in PROPERTIES.values()]
    return Table(
        f"The {len(rows)} tables on which {model} is furthest behind. Categorical columns, missing "
        "cells and the largest class are shares; lead of trees: ROC-AUC of "
        f"{TREES} minus that of {LINEAR}.",
        ["Table", "best baseline", model, "best", "gap", *titles],
        [rows],
        text_columns=2,
    )


def findings(gaps: pd.DataFrame, rho: pd.DataFrame, model: str) -> list[str]:
    """Sentences that follow from the numbers."""
    behind, count = int((gaps["gap"] < 0).sum()), len(gaps)
    low, middle, high = (signed(x) for x in gaps["gap"].quantile([0.25, 0.5, 0.75]))
    winners = gaps.head(WEAKEST)["baseline"].value_counts()
    best = ", ".join(f"{name} ({times})" for name, times in winners.items())
    lines = [
        f"`{model}` is behind the best baseline on {behind} of {count} tables; the median gap is "
        f"{middle} (quartiles {low} and {high}). The best of several baselines is chosen by the "
        "same folds, which favours the baselines a little.",
        f"On the {min(WEAKEST, count)} weakest tables the best baseline is {best}.",
    ]
    if rho.empty:
        return [*lines, f"{count} tables are too few, or too alike, to relate gaps to properties."]
    clear = rho[rho["adjusted"] <= ALPHA].sort_values("adjusted")
    if clear.empty:
        strongest = rho["rho"].abs().idxmax()
        return [
            *lines,
            f"No property is related to the gap beyond chance (after Holm's correction); the "
            f"closest is {PROPERTIES[str(strongest)].title} (correlation "
            f"{signed(rho.loc[strongest, 'rho'], 2)}, adjusted p "
            f"{rho.loc[strongest, 'adjusted']:.2f}). What the weak tables share, if anything, is "
            "none of these.",
        ]
    for name, row in clear.iterrows():
        way = "further behind" if row.rho < 0 else "closer to, or further ahead of, the best"
        lines.append(
            f"It is {way} on tables {PROPERTIES[str(name)].larger} (correlation "
            f"{signed(row.rho, 2)}, adjusted p {row.adjusted:.2g})."
        )
    rest = [PROPERTIES[str(name)].title for name in rho.index.difference(clear.index, sort=False)]
    if rest:
        lines.append(f"No relation beyond chance: {', '.join(rest)}.")
    return lines
